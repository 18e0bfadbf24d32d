// text_test.cpp: from files to tokens: manual pages as text, cleaning, the tokenizer, and
// `tokenize`.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "trainer/base/files.hpp"
#include "trainer/data/clean.hpp"
#include "trainer/data/corpus.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/man_text.hpp"
#include "trainer/data/shards.hpp"
#include "trainer/data/tokenize.hpp"
#include "trainer/data/tokenizer.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;

class TrainerText : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "sennit_text_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

constexpr const char* kPage = R"page('\" t
.\" A comment, and a licence that nobody should learn.
.TH open 2 2023-02-05 "Linux man-pages 6.03"
.SH NAME
open, creat \- open a file
.SH SYNOPSIS
.nf
.BI "int open(const char *" pathname ", int " flags \
", mode_t " mode );
    /* see \fBclose\fP(2) */
.fi
.SH "RETURN VALUE"
The
.BR open ()
system call, which is told of in more words than a terminal of eighty columns has room for, returns
\-1.
.TP
.BR O_APPEND " (since 2.0)"
Append.
)page";

TEST_F(TrainerText, ManualPagesBecomePlainText) {
  EXPECT_TRUE(is_man_page(kPage));
  EXPECT_FALSE(is_man_page("Once upon a time\n.TH is no macro here\n"));
  const Result<std::string> text = man_text(kPage);
  if (text.status().kind() == SENNIT_UNSUPPORTED) GTEST_SKIP() << text.status().text();
  ASSERT_TRUE(text.ok()) << text.status().text();
  EXPECT_EQ(*text, R"(NAME
open, creat - open a file

SYNOPSIS
int open(const char *pathname, int flags, mode_t mode);
    /* see close(2) */

RETURN VALUE
The open() system call, which is told of in more words than a terminal of eighty columns has room for, returns -1.

O_APPEND (since 2.0)
Append.
)");
  EXPECT_EQ(*man_text(".so man2/open.2\n"), "");
  EXPECT_EQ(*man_text(""), "");
}

TEST_F(TrainerText, AManualPageThatNeverEndsIsEnded) {
  const Result<std::string> text =
      man_text(".TH x 1\n.while 1 \\{.nop\n.\\}\n", std::chrono::milliseconds(200));
  if (text.status().kind() == SENNIT_UNSUPPORTED) GTEST_SKIP() << text.status().text();
  EXPECT_EQ(text.status().text(), "groff did not end within 200 ms");
}

TEST_F(TrainerText, WithoutGroffTheErrorSaysWhatToInstall) {
  const std::string file = write("page.1", kPage), path = std::getenv("PATH");
  setenv("PATH", folder_.c_str(), 1);
  std::vector<std::string> documents;
  const Status status = read_documents(file, &documents);
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(status.kind(), SENNIT_UNSUPPORTED);
  EXPECT_NE(status.text().find("install the package groff-base"), std::string::npos)
      << status.text();
}

TEST_F(TrainerText, FindsFilesFoldersAndGlobsOnce) {
  const std::string a = write("a.txt", "alpha\n"), b = write("sub/b.txt", "beta\n"),
                    c = write("sub/c.md", "gamma\n");
  fs::create_symlink(a, folder_ + "/again.txt");
  const auto found = find_texts({folder_, folder_ + "/*.txt", b});
  ASSERT_TRUE(found.ok()) << found.status().text();
  EXPECT_EQ(*found, (std::vector<std::string>{a, b, c}));
  EXPECT_EQ(find_texts({folder_ + "/*.pdf"}).status().text(),
            folder_ + "/*.pdf: there is no file of text");
}

TEST_F(TrainerText, ReadsWhatIsCompressedAndJsonLines) {
  const std::string file = folder_ + "/lines.jsonl.gz";
  gzFile stream = gzopen(file.c_str(), "wb");
  gzputs(stream, "{\"text\": \"one\\ntwo\", \"id\": 3}\n\n{\"text\": \"three\"}\n");
  gzclose(stream);
  std::vector<std::string> documents;
  ASSERT_TRUE(read_documents(file, &documents).ok());
  EXPECT_EQ(documents, (std::vector<std::string>{"one\ntwo", "three"}));
  fs::resize_file(file, fs::file_size(file) - 9);
  EXPECT_NE(read_documents(file, &documents).text().find(file + ": cannot be read: "),
            std::string::npos);
  const std::string bad = write("bad.jsonl", "{\"text\": \"x\"}\n{\"txt\": 1}\n");
  EXPECT_EQ(read_documents(bad, &documents).text(), bad + ":2: is no JSON object with a \"text\"");
}

TEST_F(TrainerText, CutsLongTextsAtLines) {
  std::string text;
  for (int i = 0; text.size() < 5 * kLongestDocument; i++)
    text += std::to_string(i) + " a line of some length\n";
  std::vector<std::string> documents;
  ASSERT_TRUE(read_documents(write("long.txt", text), &documents).ok());
  EXPECT_EQ(documents.size(), 6u);
  std::string whole;
  for (const std::string& document : documents) {
    EXPECT_LE(document.size(), kLongestDocument);
    EXPECT_EQ(document.back(), '\n');
    whole += document;
  }
  EXPECT_EQ(whole, text);
}

std::string words(int seed, int count) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::string text;
  for (int i = 0; i < count; i++) {
    for (unsigned k = 3 + random() % 5; k > 0; k--) text += static_cast<char>('a' + random() % 26);
    text += i % 12 == 11 ? '\n' : ' ';
  }
  return text;
}

std::vector<bool> kept(const CleanOptions& options, std::vector<std::string> texts) {
  Cleaner cleaner(options);
  std::vector<bool> decisions;
  for (std::string& text : texts) decisions.push_back(cleaner.keep(mark(text, options), &text));
  return decisions;
}

TEST_F(TrainerText, LeavesOutCopiesAsFarAsAsked) {
  const std::string text = words(1, 300), other = words(2, 300), loud = [&] {
    std::string upper = "\n  " + text;
    for (char& letter : upper) letter = static_cast<char>(std::toupper(letter));
    return upper;
  }();
  std::string nearly = text;
  nearly.replace(nearly.find(' ', 700), 6, " other");
  const std::vector<std::string> texts = {text, other, text, loud, nearly};
  using Kept = std::vector<bool>;
  EXPECT_EQ(kept({.dedup = Dedup::none}, texts), (Kept{true, true, true, true, true}));
  EXPECT_EQ(kept({.dedup = Dedup::exact}, texts), (Kept{true, true, false, false, true}));
  EXPECT_EQ(kept({.dedup = Dedup::near}, texts), (Kept{true, true, false, false, false}));
  const CleanOptions paragraphs{.dedup = Dedup::paragraphs};
  Cleaner cleaner(paragraphs);
  std::string first = "One.\n\n" + text + "\n\nEnd.\n", second = "Two.\n\n" + text + "\n\nEnd.\n";
  EXPECT_TRUE(cleaner.keep(mark(first, paragraphs), &first));
  EXPECT_TRUE(cleaner.keep(mark(second, paragraphs), &second));
  EXPECT_EQ(second, "Two.\n\nEnd.\n");  // short paragraphs may come again
  EXPECT_EQ(cleaner.counts().paragraphs, 1);
}

TEST_F(TrainerText, QualityIsARule) {
  EXPECT_EQ(quality_fault(words(3, 100)), nullptr);
  EXPECT_EQ(quality_fault("Größe, naïve, 東京 — fine text.\n"), nullptr);
  EXPECT_STREQ(quality_fault("{[(<>)]};;;;====****&&&&"), "too few letters");
  EXPECT_STREQ(quality_fault("a b c d e f g h i"), "words too short or too long");
  EXPECT_STREQ(quality_fault(std::string(500, 'x')), "words too short or too long");
  EXPECT_STREQ(quality_fault("good text\nbuy it now\nbuy it now\nbuy it now\n"),
               "lines again and again");
  EXPECT_STREQ(quality_fault("caf\xe9 au lait"), "not UTF-8 text");
  EXPECT_STREQ(quality_fault(std::string("nul\0byte", 8)), "not UTF-8 text");
  const CleanOptions options{.min_bytes = 50};
  EXPECT_EQ(kept(options, {"short", words(4, 40)}), (std::vector<bool>{false, true}));
}

TEST_F(TrainerText, HoldsOutBySharesThatStay) {
  CleanOptions options{.held_out = 0.1};
  int held = 0, of_smaller = 0;
  for (int i = 0; i < 5000; i++) {
    const Marks marks = mark("document number " + std::to_string(i), options);
    held += held_out(marks, options);
    CleanOptions smaller = options;
    smaller.held_out = 0.05;
    of_smaller += held_out(marks, smaller) && !held_out(marks, options);
  }
  EXPECT_NEAR(held, 500, 100);
  EXPECT_EQ(of_smaller, 0);  // a smaller share is part of a larger one
}

TEST_F(TrainerText, TheTokenizerGivesBackAnyBytes) {
  const auto tokenizer =
      Tokenizer::learn({words(5, 4000), "  int main(void)\n{\n\treturn 0;\n}\n"}, 400);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  EXPECT_TRUE((*tokenizer)->exact());
  EXPECT_EQ((*tokenizer)->vocabulary(), 400);
  const auto again = Tokenizer::from_bytes((*tokenizer)->model(), "again");
  ASSERT_TRUE(again.ok()) << again.status().text();
  std::mt19937 random(6);
  std::vector<std::string> texts = {"",
                                    " ",
                                    "   ",
                                    "\n\n",
                                    "a  b\t c \n",
                                    "\xe2\x96\x81 \xe2\x96\x81x",
                                    "東京 naïve 🧶",
                                    std::string("\0\0a\0", 4),
                                    "\xff\xfe\x80",
                                    "\xed\xa0\x80",
                                    "\xf4\x90\x80\x80",
                                    "<s></s><unk><0x41>",
                                    std::string(9000, 'z'),
                                    words(7, 500)};
  for (int round = 0; round < 300; round++) {
    std::string text(random() % 200, '\0');
    for (char& letter : text)
      letter = static_cast<char>(round % 2 ? random()
                                           : " \n\xe2\x96\x81"
                                             "ab"[random() % 7]);
    texts.push_back(text);
  }
  Tokenizer::Memory memory, fresh;
  for (const std::string& text : texts) {
    std::vector<int32_t> tokens, same;
    (*tokenizer)->encode(text, &tokens, &memory);
    EXPECT_EQ((*tokenizer)->decode(tokens), text);
    fresh.clear();
    (*again)->encode(text, &same, &fresh);
    EXPECT_EQ(same, tokens);
  }
  std::vector<int32_t> tokens;
  (*tokenizer)->encode(texts.back() + words(5, 100), &tokens, &memory);
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{1, 2, -1, 400, 0}), "");
}

TEST_F(TrainerText, OffTokenizersAreNamed) {
  EXPECT_EQ(
      Tokenizer::learn({"text"}, 200).status().text(),
      "a vocabulary of 200: it must be from 260 (256 bytes, 3 of its own, a piece) to 1048576");
  EXPECT_EQ(Tokenizer::learn({""}, 300).status().text(),
            "there is no text to learn a tokenizer from");
  const std::string file = write("t.model", "this is no protocol buffer");
  EXPECT_EQ(Tokenizer::load(file).status().text(),
            file + ": is no tokenizer of sentencepiece's, or is damaged");
  const std::string empty = write("e.model", "");
  EXPECT_EQ(Tokenizer::load(empty).status().text(),
            empty + ": is no tokenizer of sentencepiece's, or is damaged");
  const std::string whole = (*Tokenizer::learn({words(8, 2000)}, 300))->model();
  // refused, or of a smaller vocabulary
  for (size_t length = 0; length < whole.size(); length += 97) {
    const auto cut = Tokenizer::from_bytes(whole.substr(0, length), "cut");
    EXPECT_LT(cut.ok() ? (*cut)->vocabulary() : 0, 300);
  }
}

TEST_F(TrainerText, TokenizeIsDeterministicAndWhole) {
  for (int i = 0; i < 40; i++) write("texts/" + std::to_string(i) + ".txt", words(100 + i, 400));
  TokenizeOptions options;
  options.inputs = {folder_ + "/texts"};
  options.folder = folder_ + "/one";
  options.vocabulary = 500;
  options.clean.held_out = 0.2;
  options.shard_tokens = 10'000;
  options.threads = 1;
  const auto quiet = [](const std::string&) {};
  const auto one = tokenize(options, quiet);
  ASSERT_TRUE(one.ok()) << one.status().text();
  options.folder = folder_ + "/two";
  options.threads = 3;
  const auto two = tokenize(options, quiet);
  ASSERT_TRUE(two.ok()) << two.status().text();
  EXPECT_EQ(one->documents, 40);
  const std::vector<std::string> names = names_in(folder_ + "/one");
  ASSERT_GT(names.size(), 4u);
  EXPECT_EQ(names, names_in(folder_ + "/two"));
  for (const std::string& name : names)
    EXPECT_EQ(*read_file(folder_ + "/one/" + name), *read_file(folder_ + "/two/" + name)) << name;
  // Both parts together, decoded, are the texts; each begins and ends with its marks.
  const auto data = Dataset::open(folder_ + "/two");
  ASSERT_TRUE(data.ok()) << data.status().text();
  EXPECT_TRUE((*data)->verify().ok());
  EXPECT_EQ((*data)->vocabulary(), 500);
  const auto tokenizer = Tokenizer::load((*data)->tokenizer_file());
  ASSERT_TRUE(tokenizer.ok());
  size_t documents = 0, bytes = 0;
  for (const Split split : {Split::training, Split::held_out}) {
    std::vector<int32_t> tokens(static_cast<size_t>((*data)->tokens(split)));
    (*data)->read(split, 0, tokens);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 1),
              std::count(tokens.begin(), tokens.end(), 2));
    for (auto begin = tokens.begin(); begin != tokens.end(); documents++) {
      ASSERT_EQ(*begin, 1);
      const auto end = std::find(begin, tokens.end(), 2);
      const std::string text = (*tokenizer)->decode(std::span(begin, end));
      bytes += text.size();
      bool found = false;
      for (int i = 0; i < 40 && !found; i++) found = text == words(100 + i, 400);
      EXPECT_TRUE(found);
      begin = end + 1;
    }
  }
  EXPECT_EQ(documents, 40u);
  EXPECT_EQ(bytes, one->text_bytes);
  EXPECT_GT((*data)->tokens(Split::held_out), 0);
}

}  // namespace
}  // namespace sennit::trainer
