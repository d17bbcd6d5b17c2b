// Models by name and as files: presets, published ones, JSON, the folders of Hugging Face.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/decoder.h"

namespace headroom::engine {

const std::vector<Decoder>& presets();
std::string preset_in_words(const Decoder&);  // a sentence that says what a preset's size is; empty for any other model

// A preset's name, a JSON file (ours, with the keys of plain_model.h, or a Hugging Face config.json), or a folder that holds a config.json.
Decoder model_described(std::string_view name_or_file);
Decoder model_from_json(std::string_view text, std::string_view name);
std::string to_json(const Decoder&);  // as our own file where its keys say everything, else as the config.json that described it

bool same_model(const Decoder&, const Decoder&);  // whatever they are called

// Positions that a model was made for, as its config.json has them, with what its scaling of positions adds. 0: no file says so.
std::int64_t positions_said(const Decoder&);
std::string past_its_positions(const Decoder&, std::int64_t len);  // one line where a length is past those; empty where it is not

}  // namespace headroom::engine
