// One function for each format of format/formats.cpp.
#pragma once

#include "titanium/data/format/source_format.h"

namespace titanium::data {

const SourceFormat& json_lines();       // .jsonl, .json, .ndjson: one object per line
const SourceFormat& text_files();       // .txt: the whole file is one document
const SourceFormat& parquet_files();    // .parquet
const SourceFormat& arrow_files();      // .arrow: IPC streams and files
const SourceFormat& megatron_files();   // .idx with its .bin
const SourceFormat& datatrove_files();  // .ds with its .ds.index
const SourceFormat& token_arrays();     // .bin of llm.c, .npy, raw arrays of either name
const SourceFormat& mds_shards();       // .mds
const SourceFormat& tar_archives();     // .tar: WebDataset

}  // namespace titanium::data
