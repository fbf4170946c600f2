// The stream of a GPU on which kernels are queued: the one place that knows what each back end calls it.
#pragma once

#if defined(__HIP__)
struct ihipStream_t;
#else
struct CUstream_st;
#endif

namespace titanium::kernels {

#if defined(__HIP__)
using GpuStream = ihipStream_t*;
#else
using GpuStream = CUstream_st*;
#endif

}  // namespace titanium::kernels
