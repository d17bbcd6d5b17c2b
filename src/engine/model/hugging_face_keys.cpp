#include "engine/model/hugging_face_keys.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;

constexpr std::int64_t largest = (std::int64_t(1) << 31) - 1;  // so that the product of two is a number too

// Said in many files; no weight, no tensor and no product of a pass depends on them.
constexpr std::string_view inert[] = {"architectures",
                                      "torch_dtype",
                                      "dtype",
                                      "bos_token_id",
                                      "eos_token_id",
                                      "pad_token_id",
                                      "unk_token_id",
                                      "sep_token_id",
                                      "cls_token_id",
                                      "decoder_start_token_id",
                                      "bos_token",
                                      "eos_token",
                                      "use_cache",
                                      "initializer_range",
                                      "initializer_factor",
                                      "attention_dropout",
                                      "attn_pdrop",
                                      "resid_pdrop",
                                      "embd_pdrop",
                                      "hidden_dropout",
                                      "resid_dropout",
                                      "embd_dropout",
                                      "classifier_dropout",
                                      "summary_type",
                                      "summary_use_proj",
                                      "summary_activation",
                                      "summary_proj_to_labels",
                                      "summary_first_dropout",
                                      "task_specific_params",
                                      "transformers_version",
                                      "_name_or_path",
                                      "_commit_hash",
                                      "name",
                                      "name_or_path",
                                      "auto_map",
                                      "max_position_embeddings",
                                      "original_max_position_embeddings",
                                      "initial_context_length",
                                      "n_ctx",
                                      "output_attentions",
                                      "output_hidden_states",
                                      "return_dict",
                                      "tokenizer_class",
                                      "router_aux_loss_coef",
                                      "aux_loss_alpha",
                                      "output_router_logits",
                                      "router_jitter_noise",
                                      "seq_aux",
                                      "id2label",
                                      "label2id",
                                      "problem_type",
                                      "pruned_heads",
                                      "chunk_size_feed_forward",
                                      "cache_implementation",
                                      "torchscript",
                                      "gradient_checkpointing",
                                      "keys_to_ignore_at_inference",
                                      "ep_size",
                                      "attn_implementation",
                                      "_attn_implementation",
                                      "_attn_implementation_autoset",
                                      "reorder_and_upcast_attn",
                                      "is_decoder",
                                      "pretraining_tp",
                                      "use_bfloat16",
                                      "tf_legacy_loss",
                                      "boi_token_index",
                                      "eoi_token_index",
                                      "image_token_index",
                                      "mm_tokens_per_image",
                                      "unsloth_fixed",
                                      "model_name",
                                      "save_step",
                                      "num_return_sequences",
                                      "max_length",
                                      "min_length",
                                      "diversity_penalty",
                                      "length_penalty",
                                      "repetition_penalty",
                                      "no_repeat_ngram_size",
                                      "encoder_no_repeat_ngram_size",
                                      "num_beams",
                                      "num_beam_groups",
                                      "temperature",
                                      "top_k",
                                      "top_p",
                                      "typical_p",
                                      "norm_topk_prob",
                                      "routed_scaling_factor",
                                      "topk_method",
                                      "topk_group",
                                      "n_group",
                                      "scoring_func",
                                      "swiglu_limit",
                                      "experts_per_token"};

// In published files, and read by no class of transformers that is known here: they change nothing, and a note names them.
constexpr std::string_view unread[] = {
    "n_special",   "predict_special_tokens", "sliding_window_size", "full_attn_mod",       "interpolate_factor", "is_llama_config",
    "_num_labels", "swiglu_alpha",           "model_max_length",    "max_sequence_length", "seq_length",         "max_new_tokens",
    "pad_token",   "padding_side",           "num_labels",          "output_past",         "ignore_index",       "trust_remote_code"};

struct Refused {
  std::string_view key;
  const char* why;
};
constexpr Refused refused[] = {
    {"dual_chunk_attention_config", "attention in chunks keeps other tensors than the attention that is counted"}};

std::string printed(const Json& v) { return text_of_json(v).substr(0, 80); }

}  // namespace

std::int64_t KeyReader::integer(const char* key) {
  const Json* v = find(key);
  if (!v) lacks(key);
  return integer(key, 0);
}

std::int64_t KeyReader::integer(const char* key, std::int64_t otherwise) {
  const Json* v = find(key);
  if (!v) return otherwise;
  check(v->is_number_integer(), Code::bad_argument, "model: '{}' is {}, it must be a whole number", key, printed(*v));
  check(*v >= -largest && *v <= largest, Code::bad_argument, "model: '{}' is {}, at most {} is taken", key, printed(*v), largest);
  return v->get<std::int64_t>();
}

double KeyReader::number(const char* key, double otherwise) {
  const Json* v = find(key);
  if (!v) return otherwise;
  check(v->is_number(), Code::bad_argument, "model: '{}' is {}, it must be a number", key, printed(*v));
  return v->get<double>();
}

bool KeyReader::truth(const char* key, bool otherwise) {
  const Json* v = find(key);
  if (!v) return otherwise;
  check(v->is_boolean(), Code::bad_argument, "model: '{}' is {}, it must be true or false", key, printed(*v));
  return v->get<bool>();
}

std::string KeyReader::word(const char* key, const char* otherwise) {
  const Json* v = find(key);
  if (!v) return otherwise;
  check(v->is_string(), Code::bad_argument, "model: '{}' is {}, it must be a text in quotes", key, printed(*v));
  return v->get<std::string>();
}

const Json* KeyReader::object(const char* key) {
  const Json* v = find(key);
  check(!v || v->is_object(), Code::bad_argument, "model: '{}' is {}, it must be an object", key, v ? printed(*v) : "");
  return v;
}

const Json* KeyReader::list(const char* key) {
  const Json* v = find(key);
  check(!v || v->is_array(), Code::bad_argument, "model: '{}' is {}, it must be a list", key, v ? printed(*v) : "");
  return v;
}

void KeyReader::must_be(const char* key, const char* only, std::initializer_list<std::string_view> words) {
  const std::string w = word(key, std::string(*words.begin()).c_str());
  check(std::find(words.begin(), words.end(), w) != words.end(), Code::bad_argument, "model: '{}' is '{}'; {} {}", key, w, only, who_);
}

std::vector<std::string> KeyReader::finish() const {
  std::vector<std::string> passed_over;
  std::vector<std::string> names(known_.begin(), known_.end());
  for (const auto& [key, value] : j_.items()) {
    const bool says_nothing = value.is_null() || value == Json(false) || ((value.is_array() || value.is_object()) && value.empty());
    if (!known_.contains(key) && std::find(std::begin(unread), std::end(unread), key) != std::end(unread)) {
      passed_over.push_back(key);
      continue;
    }
    for (const Refused& r : refused) check(r.key != key || says_nothing, Code::unsupported, "model: '{}' is not counted: {}", key, r.why);
    if (known_.contains(key) || says_nothing || std::find(std::begin(inert), std::end(inert), key) != std::end(inert)) continue;
    throw Error(Code::bad_argument, fmt::format("model: the key '{}' is not known of {}, and it may change bytes or arithmetic{}", key,
                                                who_, meant_by(key, names)));
  }
  return passed_over;
}

const Json* KeyReader::find(const char* key) {
  known_.insert(key);
  const auto at = j_.find(key);
  return at == j_.end() || at->is_null() ? nullptr : &*at;
}

void KeyReader::lacks(const char* key) const {
  std::vector<std::string> others;
  for (const auto& item : j_.items())
    if (!known_.contains(item.key())) others.push_back(item.key());
  const std::string near = closest(key, others);
  throw Error(Code::bad_argument,
              fmt::format("model: a config.json of {} needs '{}'{}", who_, key, near.empty() ? "" : fmt::format("; it has '{}'", near)));
}

// The understood key that this file lacks and that shares most of its words with another: num_kv_heads, num_key_value_heads.
std::string KeyReader::meant_by(const std::string& key, const std::vector<std::string>& names) const {
  if (const std::string near = did_you_mean(key, names); !near.empty()) return near;
  const auto words = [](std::string_view k) {
    std::set<std::string> parts;
    for (std::size_t from = 0; from <= k.size();) {
      const std::size_t to = std::min(k.find('_', from), k.size());
      parts.emplace(k.substr(from, to - from)), from = to + 1;
    }
    return parts;
  };
  const auto asked = words(key);
  std::string best;
  double most = 0.35;
  for (const std::string& name : names) {
    if (j_.contains(name)) continue;
    const auto other = words(name);
    double shared = 0;
    for (const auto& w : other) shared += asked.contains(w);
    const double share = shared / (double(asked.size()) + double(other.size()) - shared);
    if (share > most) best = name, most = share;
  }
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

}  // namespace headroom::engine
