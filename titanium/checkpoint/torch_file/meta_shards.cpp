#include "titanium/base/error.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/torch_file/dtype.h"
#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kReplicated = -1;

std::vector<std::unique_ptr<WeightsSource>> open_files(const fs::path& folder) {
  std::vector<std::unique_ptr<WeightsSource>> files;
  size_t present = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    present += name.starts_with("consolidated.") && name.ends_with(".pth") ? 1 : 0;
  }
  for (size_t i = 0; i < present; ++i) {
    const std::string name = fmt::format("consolidated.{:02}.pth", i);
    TI_CHECK(fs::exists(folder / name), "{} has {} files consolidated.NN.pth, but {} is missing. Fetch it.",
             folder.string(), present, name);
    files.push_back(open_torch_file(folder / name));
  }
  return files;
}

class MetaShards : public WeightsSource {
 public:
  explicit MetaShards(const fs::path& folder) : WeightsSource(folder), files_(open_files(folder)) {
    for (const auto& [name, first] : files_.front()->tensors()) {
      SourceTensor& merged = tensors_[name] = {first.dtype, first.shape, {}};
      const int dim = files_.size() > 1 ? cut_dim(name, first.shape) : kReplicated;
      for (size_t i = 0; i < files_.size(); ++i) {
        check_alike(name, *files_[i]);
        if (i > 0 && dim == kReplicated) continue;
        Box box{Shape(first.shape.size(), 0), first.shape};
        if (dim != kReplicated) box.offset[dim] = static_cast<int64_t>(i) * first.shape[dim];
        merged.pieces.push_back({box, fs::path(files_[i]->path()).filename().string()});
      }
      if (dim != kReplicated) merged.shape[dim] *= static_cast<int64_t>(files_.size());
    }
  }

  std::string_view format() const override { return "Meta's shards of Llama"; }

  Verification verify() const override {
    Verification all;
    for (const auto& file : files_) {
      Verification one = file->verify();
      std::ranges::move(one.damage, std::back_inserter(all.damage));
      if (all.checked.empty() || one.checked.starts_with("but")) all.checked = one.checked;
    }
    return all;
  }

 private:
  // As Meta's model is parallel: matrices by their outputs or by their inputs. Embeddings of Llama 2 are cut by
  // columns, later ones by vocabulary, which the length of a norm tells.
  int cut_dim(const std::string& name, const Shape& shape) const {
    const auto is_one_of = [&](std::initializer_list<const char*> ends) {
      return std::ranges::any_of(ends, [&](const char* end) { return name.ends_with(end); });
    };
    if (shape.size() != 2) return kReplicated;
    if (is_one_of({".wo.weight", ".w2.weight"})) return 1;
    if (name == "tok_embeddings.weight") return shape[1] == files_.front()->tensor("norm.weight").shape.at(0) ? 0 : 1;
    if (is_one_of({".wq.weight", ".wk.weight", ".wv.weight", ".w1.weight", ".w3.weight"}) || name == "output.weight") {
      return 0;
    }
    throw Error(fmt::format("{}: how \"{}\" is cut over {} files is not known. Only Llama 1 to 3 are.", path_, name,
                            files_.size()));
  }

  void check_alike(const std::string& name, const WeightsSource& file) const {
    const SourceTensor &first = files_.front()->tensor(name), &other = file.tensor(name);
    TI_CHECK(
        other.shape == first.shape && other.dtype == first.dtype,
        "{}: \"{}\" is {} [{}], but {} [{}] in the first file. The files are not of the same model: fetch them again.",
        file.path(), name, torch_dtype(other.dtype).name, fmt::join(other.shape, ", "), torch_dtype(first.dtype).name,
        fmt::join(first.shape, ", "));
  }

  void copy_box(const std::string& name, const Box& box, const Tensor& destination) const override {
    const auto& pieces = tensors_.at(name).pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto common = intersection(box, pieces[i].box);
      if (!common) continue;
      Box inside = *common, target = *common;
      for (size_t dim = 0; dim < box.shape.size(); ++dim) {
        inside.offset[dim] -= pieces[i].box.offset[dim];
        target.offset[dim] -= box.offset[dim];
      }
      files_[i]->read(name, inside, box_of(destination, target));
    }
  }

  std::vector<std::unique_ptr<WeightsSource>> files_;
};

}  // namespace

std::unique_ptr<WeightsSource> open_meta_shards(const fs::path& folder) { return std::make_unique<MetaShards>(folder); }

}  // namespace titanium::checkpoint
