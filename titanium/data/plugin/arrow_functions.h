// What the plug-in libtitanium_arrow.so does for the program: it reads one column of a Parquet or Arrow file. Plain C,
// because the plug-in lives with Arrow's libraries and the program without them. The functions catch all exceptions.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

// Consecutive rows of the column; lives until the next call with the same file.
struct TitaniumRows {
  int64_t count;
  const char* const* data;
  const int64_t* sizes;  // bytes; -1: the value is null
  int32_t token_bytes;   // 0: texts, else integers of this size
};

// A file that the program reads for the plug-in.
struct TitaniumBytes {
  void* source;
  int64_t size;
  // Fills `out` with bytes that are inside the file. 0: done, -1: not, and the program remembers why.
  int32_t (*read)(void* source, int64_t offset, int64_t size, char* out);
  // Bytes [begin, end) will be read next, and those after them will not be.
  void (*expect)(void* source, int64_t begin, int64_t end);
};

struct TitaniumArrow {
  int32_t version;
  // A file whose column `column` (a path with dots for fields inside structs) holds texts, or lists of integers.
  // Without `bytes`, the file is at `path`. Null: `error` says why.
  void* (*open)(const char* path, const TitaniumBytes* bytes, const char* column, char* error, size_t error_size);
  void (*close)(void* file);
  // Groups of rows that can be entered; -1: not known until all are read.
  int64_t (*groups)(void* file);
  // Rows of a group; -1: not known until it is read.
  int64_t (*rows)(void* file, int64_t group);
  // Bytes that the column takes in a group; -1: not known.
  int64_t (*bytes)(void* file, int64_t group);
  // Makes `next` begin with a group. 1: done, 0: there is no such group, -1: `error` says why.
  int32_t (*enter)(void* file, int64_t group, char* error, size_t error_size);
  // 1: rows, 0: the group has no more, -1: `error` says why.
  int32_t (*next)(void* file, TitaniumRows* rows, char* error, size_t error_size);
  // Memory that the file takes between calls, and giving it back: `next` then goes on with row `row` of the group that
  // was entered, one of those that it gave last or the one behind them. 1: done, 0: that would cost much reading, -1:
  // `error` says why.
  int64_t (*held_bytes)(void* file);
  int32_t (*rest)(void* file, int64_t row, char* error, size_t error_size);
};

// The only name that the plug-in shows.
typedef const TitaniumArrow* (*TitaniumArrowEntry)();
}

inline constexpr int32_t kTitaniumArrowVersion = 4;
