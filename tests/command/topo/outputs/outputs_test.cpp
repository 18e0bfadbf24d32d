// outputs_test.cpp: the pictures and pages of `sennit topo` stay legible, and no name breaks out.
//
// ctest links: sennit_commands
// ctest not-under-tsan: it has one thread
#include "command/topo/outputs/outputs.hpp"

#include <string>

#include <gtest/gtest.h>

#include "command/topo/make_model.hpp"
#include "topology/source.hpp"

namespace sennit::topo {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) found++;
  return found;
}

// Whatever the size, the picture has a page's height; what is degraded is in it by name, in red.
TEST(TopoOutputs, PicturesStayLegible) {
  for (const char* spec :
       {"racks=2x4;nic=400Mbit/s;oversubscription=7", "racks=8x8;nic=50GB/s;oversubscription=3",
        "meta24k", "racks=1x100;nic=50GB/s"}) {
    SCOPED_TRACE(spec);
    std::string text = synthetic_fabric(spec)->to_text();
    const size_t rate = text.find(' ', text.find("link h5 ") + 8) + 1;
    text.replace(rate, text.find_first_of(" \n", rate) - rate, "8Mbit/s");
    const Fabric fabric = parse_fabric(text, spec).value();
    const Model model = make_model(fabric).value();
    ASSERT_EQ(model.suspects.size(), 1u);
    const Reading reading{fabric, {}, spec, "", false};
    const std::string svg = svg_of(reading, model, false);
    const size_t height = svg.find("height='") + 8;
    EXPECT_LT(std::stoi(svg.substr(height)), 1400);
    EXPECT_LT(svg.size(), 60'000u);
    EXPECT_NE(svg.find(">h5<"), svg.npos) << "the slow host is not shown by name";
    EXPECT_EQ(count(svg, "class='link bad'"), 1u);
    EXPECT_EQ(count(svg, "<g"), count(svg, "</g>"));
    EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
    EXPECT_NE(page_of(reading, model).find("</html>"), std::string::npos);
  }
}

TEST(TopoOutputs, NamesCannotBreakOutOfPictures) {
  const Fabric fabric =
      parse_fabric(
          "switch \"<b>'&\"\nhost \"</text>\"\nhost h\nlink \"</text>\" \"<b>'&\" 8Mbit/s\n", "f")
          .value();
  const Model model = make_model(fabric).value();
  const Reading reading{fabric, {}, "<script>", "", false};
  for (const std::string& text : {svg_of(reading, model, false), page_of(reading, model)}) {
    EXPECT_EQ(text.find("<b>"), text.npos);
    EXPECT_EQ(text.find("<script>"), text.npos);
    EXPECT_EQ(count(text, "<text"), count(text, "</text>"));
  }
}

}  // namespace
}  // namespace sennit::topo
