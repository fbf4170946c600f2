// titanium inspect: lists what is in a checkpoint.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/tensor_stats.h"
#include "titanium/checkpoint/torch_file/dtype.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/cli/command_line.h"

namespace titanium::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using checkpoint::SourceTensor;
using checkpoint::WeightsSource;

constexpr size_t kLongestValue = 80;

struct Options {
  std::string path, tensor;
  bool stats = false;
  bool json = false;
};

// 1234567 -> "1.2 MB".
std::string readable_bytes(uint64_t bytes) {
  auto number = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* larger : {"kB", "MB", "GB", "TB"}) {
    if (number < 1000) break;
    number /= 1000;
    unit = larger;
  }
  return bytes < 1000 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", number, unit);
}

// From what the writer noted, from the training state, or from the name of the folder; null where none knows.
Json step_of(const WeightsSource& source) {
  const auto facts = source.facts();
  if (const auto found = facts.find("step"); found != facts.end()) return std::atoll(found->second.c_str());
  const auto names = source.values();
  if (std::ranges::find(names, "train_state.step") != names.end()) {
    const auto value = source.value("train_state.step");
    if (value.kind() == checkpoint::PickleValue::Kind::kInteger) return value.as_int();
  }
  if (const auto found = source.tensors().find("train_state.step"); found != source.tensors().end()) {
    return static_cast<int64_t>(checkpoint::stats_of(source, "train_state.step").max);
  }
  int64_t step = 0;
  const std::string name = fs::path(source.path()).lexically_normal().filename().string();
  return std::sscanf(name.c_str(), "step-%ld", &step) == 1 ? Json(step) : Json();
}

Json describe_tensor(const WeightsSource& source, const std::string& name, const Options& options) {
  const SourceTensor& tensor = source.tensor(name);
  Json json = {{"name", name},
               {"dtype", checkpoint::torch_dtype(tensor.dtype).name},
               {"shape", tensor.shape},
               {"pieces", Json::array()},
               {"bytes", tensor.bytes()}};
  for (const auto& piece : tensor.pieces) {
    json["pieces"].push_back({{"file", piece.file}, {"offset", piece.box.offset}, {"shape", piece.box.shape}});
  }
  if (options.stats) {
    const checkpoint::TensorStats stats = checkpoint::stats_of(source, name);
    json["min"] = stats.min;
    json["max"] = stats.max;
    json["mean"] = stats.mean;
    json["nan"] = stats.nan;
    json["inf"] = stats.inf;
  }
  return json;
}

Json describe(const Options& options) {
  const auto source = checkpoint::open_weights(options.path);
  Json json = {
      {"path", options.path}, {"format", source->format()}, {"step", step_of(*source)}, {"facts", source->facts()}};
  json["tensors"] = Json::array();
  json["values"] = Json::object();
  if (!options.tensor.empty()) {
    json["tensors"].push_back(describe_tensor(*source, options.tensor, options));
  } else {
    for (const auto& [name, tensor] : source->tensors())
      json["tensors"].push_back(describe_tensor(*source, name, options));
    // Names are unique. To search for each of them first would take hours where there are many.
    auto& values = json["values"].get_ref<Json::object_t&>();
    for (const std::string& name : source->values()) values.push_back({name, source->value(name).repr()});
  }
  uint64_t bytes = 0, elements = 0;
  for (const Json& tensor : json["tensors"]) {
    bytes += tensor["bytes"].get<uint64_t>();
    elements += static_cast<uint64_t>(volume(tensor["shape"].get<Shape>()));
  }
  json["total"] = {{"tensors", json["tensors"].size()}, {"elements", elements}, {"bytes", bytes}};
  return json;
}

std::string files_of(const Json& tensor) {
  const Json& pieces = tensor["pieces"];
  const std::string first = pieces.empty() ? "no file" : printable(pieces[0]["file"].get<std::string>());
  return pieces.size() < 2 ? first : fmt::format("{} pieces, {} ...", pieces.size(), first);
}

std::string stats_text(const Json& tensor) {
  const auto number = [&](const char* key) {  // JSON has no infinities
    return tensor[key].is_null() ? "-" : fmt::format("{:.4g}", tensor[key].get<double>());
  };
  return fmt::format("  min {:>10}  max {:>10}  mean {:>10}  nan {}  inf {}", number("min"), number("max"),
                     number("mean"), tensor["nan"].get<int64_t>(), tensor["inf"].get<int64_t>());
}

void print_table(const Json& json, const Options& options) {
  const std::string step = json["step"].is_null() ? "" : fmt::format(", step {}", json["step"].get<int64_t>());
  fmt::print("{}: {}{}\n", printable(json["path"].get<std::string>()), json["format"].get<std::string>(), step);
  for (const auto& [key, fact] : json["facts"].items()) {
    fmt::print("  {}: {}\n", printable(key), printable(fact.get<std::string>()));
  }
  const auto name_of = [](const Json& tensor) { return printable(tensor["name"].get_ref<const std::string&>()); };
  size_t width = 0;
  for (const Json& tensor : json["tensors"]) width = std::max(width, name_of(tensor).size());
  for (const Json& tensor : json["tensors"]) {
    const std::string shape = fmt::format("[{}]", fmt::join(tensor["shape"].get<Shape>(), ", "));
    fmt::print("  {:<{}}  {:<9} {:<16} {:>10}  {}{}\n", name_of(tensor), width, tensor["dtype"].get<std::string>(),
               shape, readable_bytes(tensor["bytes"]), files_of(tensor), options.stats ? stats_text(tensor) : "");
    if (options.tensor.empty()) continue;
    for (const Json& piece : tensor["pieces"]) {
      fmt::print("    {} in {}\n", checkpoint::to_string({piece["offset"], piece["shape"]}),
                 printable(piece["file"].get<std::string>()));
    }
  }
  for (const auto& [name, value] : json["values"].items()) {
    fmt::print("  {} = {}\n", printable(name), printable(value.get_ref<const std::string&>(), kLongestValue));
  }
  const Json& total = json["total"];
  fmt::print("{} tensors, {} numbers, {}\n", total["tensors"].get<int64_t>(), total["elements"].get<int64_t>(),
             readable_bytes(total["bytes"]));
}

}  // namespace

int run_inspect(Arguments args) {
  Options options;
  CommandLine app(
      "Lists what is in a distributed checkpoint, a folder or file of Hugging Face weights, a file of torch.save or a\n"
      "folder of Meta's Llama: names, dtypes, shapes, sizes, and where the pieces lie.",
      "inspect");
  app.option("PATH", options.path, "Folder or file").required();
  app.option("--tensor", options.tensor, "Only this tensor, with all its pieces");
  app.flag("--stats", options.stats, "Also minimum, maximum and mean of the finite numbers, and how many are not");
  app.flag("--json", options.json, "As one JSON object");
  if (!app.parse(args)) return 0;
  const Json json = describe(options);
  if (options.json) {
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_table(json, options);
  }
  return 0;
}

}  // namespace titanium::cli
