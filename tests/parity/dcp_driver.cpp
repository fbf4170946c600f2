// For parity/dcp.py: the C++ half. The plan is a JSON file.
//
//   dcp_driver read FOLDER PLAN OUT.safetensors   prints the objects, one "name<TAB>Python literal" a line
//     plan: {"boxes": [{"name", "shape", "offset", "size", "dtype"?}, ...]}, box i becomes tensor "i"
//   dcp_driver write SOURCE FOLDER PLAN FILES     cuts the tensors of the checkpoint SOURCE anew
//     plan: {"ranks": [[{"name", "offset", "size"}, ...], ...]}; objects are written by rank 0
//   dcp_driver verify FOLDER
#include <ATen/ops/empty.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/support/whole_tensor.h"
#include "titanium/base/error.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/checkpoint/torch_file/dtype.h"

namespace {

using namespace titanium;
using namespace titanium::checkpoint;
using nlohmann::json;

std::vector<json> read_plan(const char* path, const char* key) {
  return json::parse(std::ifstream(path)).at(key).get<std::vector<json>>();
}

std::vector<std::string> names_of(const DcpReader& reader, bool tensors) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : reader.metadata().entries) {
    if (std::holds_alternative<DcpTensor>(entry) == tensors) names.push_back(name);
  }
  return names;
}

int read(const char* folder, const char* plan, const char* out) {
  const DcpReader reader(folder);
  std::vector<NamedTensor> tensors;
  for (const json& box : read_plan(plan, "boxes")) {
    const auto name = box["name"].get<std::string>();
    const Box wanted{box["offset"].get<Shape>(), box["size"].get<Shape>()};
    Dtype dtype = reader.tensor(name).dtype;
    if (box.contains("dtype")) dtype = find_torch_dtype(box["dtype"].get<std::string>())->dtype;
    const Tensor destination = at::empty(wanted.shape, at::TensorOptions(dtype));
    reader.read_box(name, box["shape"].get<Shape>(), wanted, destination);
    tensors.push_back({std::to_string(tensors.size()), destination});
  }
  write_safetensors(out, tensors);
  for (const std::string& name : names_of(reader, false)) {
    std::cout << name << "\t" << reader.read_object(name).repr() << "\n";
  }
  return 0;
}

int write(const char* source, const char* folder, const char* plan, const char* files) {
  const DcpReader reader(source);
  std::vector<DcpPart> parts;
  for (const json& rank : read_plan(plan, "ranks")) {
    std::vector<DcpTensorItem> tensors;
    std::vector<DcpObjectItem> objects;
    for (const json& item : rank) {
      const auto name = item["name"].get<std::string>();
      const Box box{item["offset"].get<Shape>(), item["size"].get<Shape>()};
      const Tensor whole = test::whole_tensor(reader, name);
      tensors.push_back({name, whole.sizes().vec(), box, box_of(whole, box), false, reader.metadata().paths.at(name)});
    }
    if (parts.empty()) {
      for (const std::string& name : names_of(reader, false)) {
        objects.push_back({name, reader.read_object(name), reader.metadata().paths.at(name)});
      }
    }
    const DcpPart part = write_dcp_files(folder, static_cast<int>(parts.size()), tensors, objects, std::stoi(files));
    const std::string sent = format_dcp_part(part);
    parts.push_back(parse_dcp_part(std::as_bytes(std::span(sent)), "part"));
  }
  publish_dcp(folder, parts, {{"step", "5"}});
  return 0;
}

int verify(const char* folder) {
  const auto problems = DcpReader(folder).verify();
  for (const FileProblem& problem : problems) std::cerr << problem.message << "\n";
  return problems.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  try {
    if (command == "read" && argc == 5) return read(argv[2], argv[3], argv[4]);
    if (command == "write" && argc == 6) return write(argv[2], argv[3], argv[4], argv[5]);
    if (command == "verify" && argc == 3) return verify(argv[2]);
  } catch (const titanium::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: see the top of dcp_driver.cpp\n";
  return 2;
}
