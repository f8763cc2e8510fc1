#include "megatron/training/startup/matmul_choices_file.h"

#include "megatron/comm/texts.h"
#include "megatron/kernels/cuda/matmul/matmul_tuning.h"

namespace megatron {
namespace {

constexpr std::string_view kChoicesSite = "matmul choices";

/// Empty if there is none.
std::string path_of(const MatmulChoicesQuery& query, const FileSystem& files) {
  if (query.file) return *query.file;
  for (const std::string& folder : query.folders) {
    std::string path = join_path(folder, kernels::matmul_choices_file_name(query.gpu));
    if (files.exists(path)) return path;
  }
  return "";
}

bool is_true_everywhere(const ProcessGroup& world, bool own) {
  int64_t smallest = own ? 1 : 0;
  world.all_reduce({&smallest, DType::kInt64, {1}, {1}}, ReduceOp::kMin, {.site = kChoicesSite}).wait();
  return smallest == 1;
}

}  // namespace

AgreedMatmulChoices agree_on_matmul_choices(const MatmulChoicesQuery& query, const FileSystem& files,
                                            const ProcessGroup& world) {
  constexpr std::string_view kOwn = "matrix products: cuBLASLt's own choice of algorithms";
  if (query.takes_tf32) {
    require<NotSupported>(!query.file || query.file == kNoMatmulChoices,
                          "--matmul-choices {}: such files hold algorithms for products in bf16, fp16 and fp32, and "
                          "with --float32-matmul-precision high this run takes TF32. Leave one of the two out.",
                          query.file.value_or(""));
    return {.choices = {}, .text = "matrix products: TF32, cuBLASLt's own choice of algorithms"};
  }
  if (query.file == kNoMatmulChoices) return {.choices = {}, .text = std::string(kOwn)};
  std::string path, json;
  if (world.rank() == 0) path = path_of(query, files);
  if (!path.empty()) json = read_file(files, path);
  path = broadcast_text(world, path, 0, kChoicesSite);
  if (path.empty())
    return {.choices = {},
            .text = fmt::format("{}; 'megatron bench gemm --tune' measures better ones for {}", kOwn, query.gpu)};
  kernels::MatmulChoices choices =
      kernels::matmul_choices_from_json(broadcast_text(world, json, 0, kChoicesSite), path);
  const bool fits_here = choices.gpu == query.gpu && choices.library_version == query.library_version;
  const bool fits = is_true_everywhere(world, fits_here);
  if (query.file) {
    kernels::require_made_for(choices, query.gpu, query.library_version, path);
    require<ConfigError>(fits, "{} is for {} with cuBLASLt {}, which some ranks have not. Leave --matmul-choices out.",
                         path, choices.gpu, choices.library_version);
  }
  if (!fits)
    return {.choices = {},
            .text = fmt::format("{}; not {}, which is for {} with cuBLASLt {} and not for all ranks (here {} with {})",
                                kOwn, path, choices.gpu, choices.library_version, query.gpu, query.library_version)};
  std::string text = fmt::format("matrix products: algorithms for {} shapes from {}", choices.choices.size(), path);
  return {std::move(choices), std::move(text)};
}

AgreedMatmulChoices matmul_choices_for(const DeviceChoice& device, const PretrainConfig& config,
                                       const std::vector<std::string>& folders, const FileSystem& files,
                                       const ProcessGroup& world) {
  const std::optional<std::string>& file = config.launch.matmul_choices;
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda)
      return agree_on_matmul_choices(
          {file, folders, device.gpu, kernels::cublaslt_version(), config.precision.takes_tf32()}, files, world);
  require<NotSupported>(!file || file == kNoMatmulChoices,
                        "--matmul-choices {}: this run computes on the CPU, and the file holds algorithms for a GPU. "
                        "Leave it out.",
                        file.value_or(""));
  return {};
}

std::string matmul_use_text(const kernels::MatmulUse& use) {
  std::string text =
      fmt::format("matrix products: {} of {} shapes by measured algorithms", use.num_chosen, use.products.size());
  if (use.num_chosen < std::ssize(use.products))
    text += "; 'megatron bench gemm --tune' with the flags of this run measures the others";
  return text;
}

std::string matmul_use_text(const Device& device) {
  kernels::MatmulUse use;
  if constexpr (kHasCuda) use = kernels::used_matmuls(device.cuda_stream());
  return matmul_use_text(use);
}

}  // namespace megatron
