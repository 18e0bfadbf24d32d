// outputs.hpp: what `sennit topo` gives out of a model: text, JSON, a picture, a page.
#pragma once

#include <string>

#include "command/topo/model/model.hpp"
#include "command/topo/read/read.hpp"

namespace sennit::topo {

// The terminal's tree, in UTF-8. (command/topo/outputs/text.cpp)
std::string text_of(const Reading& reading, const Model& model, bool color);
// The keys are those of command/topo/KEYS.md, which stay. (command/topo/outputs/json.cpp)
std::string json_of(const Reading& reading, const Model& model);

// The picture's style sheet, for a light ground; picture_page_style() has a dark one as well.
inline constexpr const char* kPictureStyle = R"(
.ground { fill:#ffffff; } .title { font-size:18px; font-weight:600; fill:#17202b; }
.box { fill:#eef2f8; stroke:#8a97a8; } .box.leaf { fill:#f8fafc; stroke:#b9c2cd; }
.box.bad { fill:#fdecec; stroke:#cf2f2f; stroke-width:1.6; }
.head { font-size:13px; font-weight:600; fill:#17202b; } .soft { font-size:11px; fill:#5d6875; }
.origin { font-size:10px; fill:#7b8795; }
.rate { font-size:11px; font-weight:600; fill:#17202b; } .fault { font-size:11px; fill:#b3201f; }
.ratio { font-size:13px; font-weight:600; fill:#3f7d3a; } .ratio.over { fill:#b85c00; }
.link { fill:none; stroke:#7f95b2; } .link.assumed { stroke-dasharray:7 4; }
.link.unknown { stroke-dasharray:2 4; stroke-width:2; } .link.bad { stroke:#cf2f2f; }
)";
// SVG. `embedded`: for a page that has picture_page_style() and a heading of its own; else the
// picture has its style, its ground and a title in it. (command/topo/outputs/draw.cpp)
std::string svg_of(const Reading& reading, const Model& model, bool embedded);
// The style of a page that has the picture on it. (command/topo/outputs/page.cpp)
std::string picture_page_style();
// One self-contained page of HTML. (command/topo/outputs/page.cpp)
std::string page_of(const Reading& reading, const Model& model);

}  // namespace sennit::topo
