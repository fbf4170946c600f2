#include "titanium/observe/page/page.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/test_folder.h"
#include "titanium/base/text/base64.h"
#include "titanium/base/text/json.h"
#include "titanium/observe/page/text_view.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/schedules.h"

namespace titanium::observe {
namespace {

namespace fs = std::filesystem;
using test::test_folder;
using Runs = std::vector<std::unique_ptr<RunFolder>>;

fs::path folder_with(const std::string& metrics, const std::string& events = "") {
  const fs::path folder = test_folder();
  std::ofstream(folder / "metrics.jsonl") << metrics;
  if (!events.empty()) std::ofstream(folder / "run.jsonl") << events;
  return folder;
}

Runs open(const fs::path& folder) {
  Runs runs;
  runs.push_back(std::make_unique<RunFolder>(folder));
  return runs;
}

std::string many_steps(int64_t steps) {
  std::string text;
  for (int64_t step = 1; step <= steps; ++step) {
    text += fmt::format("{{\"step\": {}, \"loss\": {}}}\n", step, step == 777 ? 99.0 : 8.0 / static_cast<double>(step));
  }
  return text;
}

TEST(Page, TextOfARunCannotBecomeMarkup) {
  const std::string evil = R"(</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>)";
  const nlohmann::json error = {{"event", "error"}, {"rank", 0}, {"unix_s", 5}, {"message", evil}};
  const Runs runs = open(folder_with("{\"step\": 1, \"loss\": 2}\n", error.dump() + "\n"));
  const std::string data = page_data(runs);
  EXPECT_EQ(data.find('<'), std::string::npos);
  EXPECT_EQ(parse_json(data)["runs"][0]["error"]["message"], evil);
  const std::string page = make_page(data);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("onerror=alert(2)>"), page.rfind("onerror=alert(2)>"));
}

TEST(Page, IsOneFileThatLoadsNothing) {
  const std::string page = make_page(page_data(open(folder_with("{\"step\": 1, \"loss\": 2}\n"))));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* loads : {"src=\"http", "href=\"http", "@import", "url("}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
  EXPECT_EQ(page.find("/*DATA*/"), std::string::npos);
  EXPECT_EQ(page.find("/*SCRIPT*/"), std::string::npos);
  EXPECT_NE(make_page("").find("id=\"data\">null</script>"), std::string::npos);
}

TEST(Page, LongCurvesAreThinnedAndKeepTheirPeaks) {
  const auto json = parse_json(page_data(open(folder_with(many_steps(5000))), {.points = 400}));
  const auto& curve = json["runs"][0]["series"]["loss"];
  EXPECT_LE(curve["x"].size(), 400U);
  EXPECT_EQ(curve["x"].size(), curve["y"].size());
  const auto peak = std::ranges::find(curve["x"], nlohmann::json(777));
  ASSERT_NE(peak, curve["x"].end());
  EXPECT_EQ(curve["y"][static_cast<size_t>(peak - curve["x"].begin())], 99);
}

TEST(Page, ARangeHasAllItsPoints) {
  const auto json = parse_json(page_data(open(folder_with(many_steps(5000))), {.points = 400, .from = 100, .to = 200}));
  const auto& x = json["runs"][0]["series"]["loss"]["x"];
  EXPECT_EQ(x.front(), 99);  // one beyond each end
  EXPECT_EQ(x.back(), 201);
  EXPECT_EQ(x.size(), 103U);
}

TEST(Page, DrawsThePipelineAndSurvivesADamagedOne) {
  const schedule::Schedule& kind = schedule::find_schedule("1F1B");
  const std::string csv = schedule::to_csv(schedule::build_table(kind, {.ranks = 2, .micro_batches = 4}));
  const auto with_csv = [&](const std::string& text) {
    const nlohmann::json start = {{"event", "start"}, {"pipeline", {{"schedule", "1F1B"}, {"csv", text}}}};
    return parse_json(page_data(open(folder_with("{\"step\": 1}\n", start.dump() + "\n"))))["runs"][0]["pipeline"];
  };
  const auto pipeline = with_csv(csv);
  EXPECT_TRUE(pipeline["title"].get<std::string>().starts_with("1F1B: 2 ranks, 2 stages, 4 micro-batches; bubble "));
  EXPECT_TRUE(pipeline["svg"].get<std::string>().starts_with("<svg"));
  EXPECT_TRUE(with_csv("0F0,1X").is_null());
}

using std::string_view_literals::operator""sv;

std::string png_of(size_t bytes) {
  return std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"sv) + std::string(bytes, 'x') +
         std::string("\0\0\0\0IEND\xae\x42\x60\x82"sv);
}

std::string images_event(int64_t step, const std::vector<std::pair<std::string, std::string>>& images) {
  nlohmann::json event = {{"event", "images"}, {"step", step}, {"images", nlohmann::json::array()}};
  for (const auto& [file, caption] : images) event["images"].push_back({{"file", file}, {"caption", caption}});
  return event.dump() + "\n";
}

TEST(Page, HasTheDrawnImagesInsideTheLatestFirst) {
  const std::string evil = "</script><b>a red circle</b>";
  const fs::path folder =
      folder_with("{\"step\": 1}\n", images_event(5, {{"img/a.png", "old"}}) + images_event(10, {{"img/b.png", evil}}));
  fs::create_directories(folder / "img");
  std::ofstream(folder / "img/a.png", std::ios::binary) << png_of(3);
  std::ofstream(folder / "img/b.png", std::ios::binary) << png_of(7);
  const std::string data = page_data(open(folder));
  EXPECT_EQ(data.find('<'), std::string::npos);
  const auto images = parse_json(data)["runs"][0]["images"];
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0]["step"], 10);
  EXPECT_EQ(images[0]["images"][0]["caption"], evil);
  EXPECT_EQ(images[0]["images"][0]["src"], "data:image/png;base64," + to_base64(png_of(7)));
  EXPECT_EQ(images[1]["images"][0]["src"], "data:image/png;base64," + to_base64(png_of(3)));
  EXPECT_EQ(parse_json(image_data(open(folder)))[0], images);
  const auto listed = parse_json(page_data(open(folder), {.image_bytes = 0}))["runs"][0]["images"];
  EXPECT_EQ(listed[0]["images"][0], nlohmann::json({{"caption", evil}}));
}

TEST(Page, ImagesAreWholeAndInTheFolderOrLeftOut) {
  const fs::path outside = test_folder(), folder = outside / "run";
  fs::create_directories(folder);
  std::ofstream(outside / "secret.png", std::ios::binary) << png_of(3);
  std::ofstream(folder / "metrics.jsonl") << "{\"step\": 1}\n";
  std::ofstream(folder / "run.jsonl") << images_event(1, {{"good.png", "good"},
                                                          {"half.png", "half"},
                                                          {"gone.png", "gone"},
                                                          {"text.png", "text"},
                                                          {"link.png", "link"},
                                                          {(outside / "secret.png").string(), "absolute"},
                                                          {"../secret.png", "above"},
                                                          {".", "folder"},
                                                          {"", "nothing"}})
                                      << "{\"event\": \"images\", \"step\": 2, \"images\": [1, null, {\"file\": 5}]}\n"
                                      << "{\"event\": \"images\", \"step\": 3, \"images\": \"many\"}\n";
  std::ofstream(folder / "good.png", std::ios::binary) << png_of(100);
  std::ofstream(folder / "half.png", std::ios::binary) << png_of(100).substr(0, 90);
  std::ofstream(folder / "text.png", std::ios::binary)
      << "not a picture at all, but long enough to be one, as it seems";
  fs::create_symlink(outside / "secret.png", folder / "link.png");
  const auto run = parse_json(page_data(open(folder)))["runs"][0];
  ASSERT_EQ(run["images"].size(), 1U);
  ASSERT_EQ(run["images"][0]["images"].size(), 1U);
  EXPECT_EQ(run["images"][0]["images"][0]["caption"], "good");
  EXPECT_EQ(run["notes"][1], "9 images left out: missing, damaged or not in the run's folder.");
}

TEST(Page, ImagesBeyondTheirRoomAreLeftOutTheOldestFirst) {
  const fs::path folder = folder_with(
      "{\"step\": 1}\n", images_event(1, {{"a.png", "a"}}) + images_event(2, {{"b.png", "b"}, {"c.png", "c"}}));
  for (const char* name : {"a.png", "b.png", "c.png"}) std::ofstream(folder / name, std::ios::binary) << png_of(1000);
  const size_t bytes = png_of(1000).size();
  const auto run = parse_json(page_data(open(folder), {.image_bytes = 2 * bytes + 1}))["runs"][0];
  ASSERT_EQ(run["images"].size(), 1U);
  EXPECT_EQ(run["images"][0]["images"].size(), 2U);
  EXPECT_EQ(run["notes"][1], "1 image left out, to keep the page small.");
}

TEST(Page, SaysWhatItLeftOut) {
  const auto json = parse_json(page_data(open(folder_with("{\"step\": 1}\nhalf\n"))));
  EXPECT_EQ(json["runs"][0]["notes"][0], "1 damaged line of metrics.jsonl left out.");
  EXPECT_EQ(json["runs"][0]["notes"][1], "There is no run.jsonl: status, configuration and restarts are not known.");
}

TEST(TextView, StatusFitsIntoEightyColumns) {
  RunSummary summary;
  summary.state = RunState::kRunning;
  summary.step = 12'340;
  summary.total_steps = 1'000'000;
  summary.loss = 2.74753;
  summary.seconds_left = 300'000;
  summary.tps = 12'345;
  summary.mfu = 41.2;
  summary.memory_gib = 78.9;
  summary.goodput = 0.987;
  EXPECT_EQ(status_line(summary), "running  step 12,340/1,000,000 1%  loss 2.7475  left 3 d 11 h  12.3 k tok/s");
  EXPECT_EQ(status_line(summary, 20), "running");
}

TEST(TextView, PlotIsAsLargeAsAskedFor) {
  const Runs runs = open(folder_with(many_steps(500)));
  const std::string plot = loss_plot(runs[0]->data(), 80, 14);
  EXPECT_EQ(std::ranges::count(plot, '\n'), 14);
  std::istringstream lines(plot);
  for (std::string line; std::getline(lines, line);) {
    const auto columns = std::ranges::count_if(line, [](char byte) { return (byte & 0xc0) != 0x80; });
    EXPECT_LE(columns, 80) << line;
  }
  EXPECT_TRUE(plot.starts_with("        8 \u2847")) << plot;  // the first loss is the largest, at the top left
  EXPECT_TRUE(plot.ends_with("500\n"));
}

TEST(TextView, AFewPointsAreJoinedByALine) {
  const std::string steps = "{\"step\": 1, \"loss\": 8}\n{\"step\": 10, \"loss\": 7}\n{\"step\": 20, \"loss\": 3}\n";
  std::istringstream lines(loss_plot(open(folder_with(steps))[0]->data(), 30, 9));
  size_t dots = 0;
  for (std::string line; std::getline(lines, line);) {
    size_t in_line = 0;  // characters with dots
    for (size_t at = line.find("\xe2"); at != std::string::npos; at = line.find("\xe2", at + 3))
      in_line += line.substr(at, 3) == "\u2800" ? 0 : 1;
    EXPECT_LE(in_line, 12U) << line;
    dots += in_line;
  }
  EXPECT_GE(dots, 20U);  // each of the 20 columns has some
}

TEST(TextView, LossesBeyondAnyDifferenceArePlotted) {
  const std::string plot = loss_plot(
      open(folder_with("{\"step\": 1, \"loss\": 1.5e308}\n{\"step\": 2, \"loss\": -1.5e308}\n"))[0]->data(), 80, 14);
  EXPECT_EQ(std::ranges::count(plot, '\n'), 14);
  EXPECT_TRUE(plot.starts_with(" 1.5e+308 ")) << plot;
}

TEST(TextView, WithoutALossThereIsNoPlot) { EXPECT_EQ(loss_plot(open(folder_with("{\"step\": 1}\n"))[0]->data()), ""); }

}  // namespace
}  // namespace titanium::observe
