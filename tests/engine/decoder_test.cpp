#include "engine/decoder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "engine/counted.h"
#include "engine/forecast.h"
#include "engine/hugging_face.h"
#include "tests/engine/dense.h"

namespace headroom::engine {
namespace {

struct Published {
  const char* name;
  std::int64_t parameters;  // that the makers or transformers' model.num_parameters() name
  const char* config;
};

// The keys of the published files that the count depends on, and some beside them.
const Published published[] = {
    {"gpt2", 124439808, R"({"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_ctx":1024,"n_embd":768,"n_layer":12,"n_head":12,
      "activation_function":"gelu_new","layer_norm_epsilon":1e-05,"resid_pdrop":0.1,"summary_type":"cls_index","task_specific_params":{"a":1}})"},
    {"gpt2-medium", 354823168, R"({"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_embd":1024,"n_layer":24,"n_head":16})"},
    {"gpt2-large", 774030080, R"({"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_embd":1280,"n_layer":36,"n_head":20})"},
    {"gpt2-xl", 1557611200, R"({"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_embd":1600,"n_layer":48,"n_head":25})"},
    {"Llama-2-7b", 6738415616,
     R"({"model_type":"llama","vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32,"rms_norm_eps":1e-05,"rope_scaling":null,"tie_word_embeddings":false,"hidden_act":"silu"})"},
    {"Llama-3.1-8B", 8030261248,
     R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":128256,"hidden_size":4096,"intermediate_size":14336,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"attention_bias":false,"mlp_bias":false,"pretraining_tp":1,
      "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},
      "rope_theta":500000.0,"torch_dtype":"bfloat16","transformers_version":"4.42.3","use_cache":true,"max_position_embeddings":131072})"},
    {"Llama-3.1-70B", 70553706496,
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,
      "num_attention_heads":64,"num_key_value_heads":8})"},
    {"Llama-3.1-405B", 405853388800,
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,
      "num_attention_heads":128,"num_key_value_heads":8})"},
    {"Llama-3.2-1B", 1235814400,
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
      "num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"tie_word_embeddings":true})"},
    {"Llama-3.2-3B", 3212749824,
     R"({"model_type":"llama","vocab_size":128256,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":28,
      "num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,"tie_word_embeddings":true})"},
    {"Mistral-7B-v0.1", 7241732096,
     R"({"model_type":"mistral","vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"sliding_window":4096,"rope_theta":10000.0})"},
    {"Mistral-Nemo", 12247782400,
     R"({"model_type":"mistral","vocab_size":131072,"hidden_size":5120,"intermediate_size":14336,"num_hidden_layers":40,
      "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"sliding_window":null})"},
    {"Mixtral-8x7B", 46702792704,
     R"({"model_type":"mixtral","vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"num_local_experts":8,"num_experts_per_tok":2,"sliding_window":null,
      "router_aux_loss_coef":0.02,"output_router_logits":false})"},
    {"Mixtral-8x22B", 140620634112,
     R"({"model_type":"mixtral","vocab_size":32000,"hidden_size":6144,"intermediate_size":16384,"num_hidden_layers":56,
      "num_attention_heads":48,"num_key_value_heads":8,"num_local_experts":8,"num_experts_per_tok":2})"},
    {"Qwen2.5-0.5B", 494032768,
     R"({"model_type":"qwen2","vocab_size":151936,"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
      "num_attention_heads":14,"num_key_value_heads":2,"tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":32768,"max_window_layers":24})"},
    {"Qwen2.5-7B", 7615616512,
     R"({"model_type":"qwen2","vocab_size":152064,"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
      "num_attention_heads":28,"num_key_value_heads":4})"},
    {"Qwen2.5-72B", 72706203648,
     R"({"model_type":"qwen2","vocab_size":152064,"hidden_size":8192,"intermediate_size":29568,"num_hidden_layers":80,
      "num_attention_heads":64,"num_key_value_heads":8})"},
    {"Qwen1.5-MoE-A2.7B", 14315784192,
     R"({"model_type":"qwen2_moe","vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,
      "num_attention_heads":16,"num_key_value_heads":16,"num_experts":60,"num_experts_per_tok":4,"moe_intermediate_size":1408,
      "shared_expert_intermediate_size":5632,"decoder_sparse_step":1,"norm_topk_prob":false,"use_sliding_window":false,"sliding_window":32768,"max_window_layers":21})"},
    {"Qwen3-0.6B", 596049920,
     R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,
      "num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"tie_word_embeddings":true,"attention_bias":false})"},
    {"Qwen3-8B", 8190735360,
     R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,
      "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128})"},
    {"Qwen3-32B", 32762123264,
     R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":5120,"intermediate_size":25600,"num_hidden_layers":64,
      "num_attention_heads":64,"num_key_value_heads":8,"head_dim":128})"},
    {"Qwen3-30B-A3B", 30532122624,
     R"({"model_type":"qwen3_moe","vocab_size":151936,"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":48,
      "num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768,
      "mlp_only_layers":[],"decoder_sparse_step":1,"norm_topk_prob":true,"sliding_window":null,"use_sliding_window":false,"max_window_layers":48})"},
    {"Qwen3-235B-A22B", 235093634560,
     R"({"model_type":"qwen3_moe","vocab_size":151936,"hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":94,
      "num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":1536})"},
    {"gemma-2b", 2506172416,
     R"({"model_type":"gemma","vocab_size":256000,"hidden_size":2048,"intermediate_size":16384,"num_hidden_layers":18,
      "num_attention_heads":8,"num_key_value_heads":1,"head_dim":256,"hidden_act":"gelu","hidden_activation":null})"},
    {"gemma-7b", 8537680896,
     R"({"model_type":"gemma","vocab_size":256000,"hidden_size":3072,"intermediate_size":24576,"num_hidden_layers":28,
      "num_attention_heads":16,"num_key_value_heads":16,"head_dim":256})"},
    {"gemma-2-2b", 2614341888,
     R"({"model_type":"gemma2","vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
      "num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,
      "query_pre_attn_scalar":256,"sliding_window":4096,"cache_implementation":"hybrid"})"},
    {"gemma-2-9b", 9241705984,
     R"({"model_type":"gemma2","vocab_size":256000,"hidden_size":3584,"intermediate_size":14336,"num_hidden_layers":42,
      "num_attention_heads":16,"num_key_value_heads":8,"head_dim":256})"},
    {"gemma-2-27b", 27227128320,
     R"({"model_type":"gemma2","vocab_size":256000,"hidden_size":4608,"intermediate_size":36864,"num_hidden_layers":46,
      "num_attention_heads":32,"num_key_value_heads":16,"head_dim":128})"},
    {"gemma-3-1b", 999885952,
     R"({"model_type":"gemma3_text","vocab_size":262144,"hidden_size":1152,"intermediate_size":6912,"num_hidden_layers":26,
      "num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"sliding_window":512,"sliding_window_pattern":6,"rope_local_base_freq":10000,
      "query_pre_attn_scalar":256})"},
    {"gemma-3-4b, its decoder", 3880263168,
     R"({"model_type":"gemma3","architectures":["Gemma3ForConditionalGeneration"],"mm_tokens_per_image":256,
      "text_config":{"hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text","num_hidden_layers":34,
      "rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024},"vision_config":{"hidden_size":1152}})"},
    {"Phi-3-mini", 3821079552,
     R"({"model_type":"phi3","vocab_size":32064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32,"sliding_window":2047})"},
    {"Phi-3-medium", 13960238080,
     R"({"model_type":"phi3","vocab_size":32064,"hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,
      "num_attention_heads":40,"num_key_value_heads":10,"sliding_window":null})"},
    {"phi-4", 14659507200, R"({"model_type":"phi3","vocab_size":100352,"hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,
      "num_attention_heads":40,"num_key_value_heads":10,"rope_theta":250000})"},
    {"Phi-4-mini", 3836021760,
     R"({"model_type":"phi3","vocab_size":200064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
      "num_attention_heads":24,"num_key_value_heads":8,"tie_word_embeddings":true,"partial_rotary_factor":0.75,
      "rope_scaling":{"long_factor":[1,2],"short_factor":[1,1],"type":"longrope"}})"},
    {"DeepSeek-V2-Lite", 15706484224,
     R"({"model_type":"deepseek_v2","vocab_size":102400,"hidden_size":2048,"intermediate_size":10944,"num_hidden_layers":27,
      "num_attention_heads":16,"num_key_value_heads":16,"q_lora_rank":null,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
      "v_head_dim":128,"moe_intermediate_size":1408,"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,
      "moe_layer_freq":1,"norm_topk_prob":false,"scoring_func":"softmax","topk_method":"greedy","routed_scaling_factor":1.0})"},
    {"DeepSeek-V2", 235741434880,
     R"({"model_type":"deepseek_v2","vocab_size":102400,"hidden_size":5120,"intermediate_size":12288,"num_hidden_layers":60,
      "num_attention_heads":128,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
      "moe_intermediate_size":1536,"n_routed_experts":160,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1})"},
    {"DeepSeek-V3", 671026404352,
     R"({"model_type":"deepseek_v3","vocab_size":129280,"hidden_size":7168,"intermediate_size":18432,"num_hidden_layers":61,
      "num_attention_heads":128,"num_key_value_heads":128,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
      "v_head_dim":128,"moe_intermediate_size":2048,"n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":8,"first_k_dense_replace":3,
      "num_nextn_predict_layers":1,"n_group":8,"topk_group":4,"quantization_config":{"quant_method":"fp8"},"ep_size":1})"},
    {"gpt-oss-20b", 20914757184,
     R"({"model_type":"gpt_oss","vocab_size":201088,"hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":24,
      "num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"num_local_experts":32,"num_experts_per_tok":4,"experts_per_token":4,
      "attention_bias":true,"sliding_window":128,"swiglu_limit":7.0,"rope_scaling":{"rope_type":"yarn","factor":32.0,"truncate":false}})"},
    {"gpt-oss-120b", 116829156672,
     R"({"model_type":"gpt_oss","vocab_size":201088,"hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":36,
      "num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"num_local_experts":128,"num_experts_per_tok":4})"},
    {"OLMo-2-1B", 1484916736,
     R"({"model_type":"olmo2","vocab_size":100352,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
      "num_attention_heads":16,"num_key_value_heads":16})"},
    {"OLMo-2-7B", 7298617344,
     R"({"model_type":"olmo2","vocab_size":100352,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32})"},
    {"OLMo-2-32B", 32234279936,
     R"({"model_type":"olmo2","vocab_size":100352,"hidden_size":5120,"intermediate_size":27648,"num_hidden_layers":64,
      "num_attention_heads":40,"num_key_value_heads":8})"},
    {"falcon-7b", 6921720704,
     R"({"model_type":"falcon","vocab_size":65024,"hidden_size":4544,"num_hidden_layers":32,"num_attention_heads":71,
      "multi_query":true,"parallel_attn":true,"bias":false,"alibi":false,"new_decoder_architecture":false,
      "layer_norm_epsilon":1e-05})"},
    {"falcon-40b", 41303293952,
     R"({"model_type":"falcon","vocab_size":65024,"hidden_size":8192,"num_hidden_layers":60,"num_attention_heads":128,
      "num_kv_heads":8,"new_decoder_architecture":true,"bias":false,"parallel_attn":true})"},
    {"falcon-rw-1b", 1311625216,
     R"({"model_type":"falcon","vocab_size":50304,"hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":32,
      "multi_query":false,"parallel_attn":false,"bias":true,"alibi":true})"},
    {"falcon-11b", 11102822400,
     R"({"model_type":"falcon","vocab_size":65024,"hidden_size":4096,"num_hidden_layers":60,"num_attention_heads":32,
      "num_kv_heads":8,"new_decoder_architecture":true,"num_ln_in_parallel_attn":1,"ffn_hidden_size":16384,
      "tie_word_embeddings":false})"},
    {"stablelm-3b", 2795443200,
     R"({"model_type":"stablelm","vocab_size":50304,"hidden_size":2560,"intermediate_size":6912,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32,"partial_rotary_factor":0.25})"},
    {"stablelm-2-12b", 12143185920,
     R"({"model_type":"stablelm","vocab_size":100352,"hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,
      "num_attention_heads":32,"num_key_value_heads":8,"qk_layernorm":true,"use_parallel_residual":true})"},
    {"stablelm-2-1_6b", 1644515328,
     R"({"model_type":"stablelm","vocab_size":100352,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,
      "num_attention_heads":32,"num_key_value_heads":32,"use_qkv_bias":true})"},
    {"pythia-1b", 1011781632,
     R"({"model_type":"gpt_neox","vocab_size":50304,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
      "num_attention_heads":8,"rotary_pct":0.25,"use_parallel_residual":true})"},
    {"gpt-neox-20b", 20554567680,
     R"({"model_type":"gpt_neox","vocab_size":50432,"hidden_size":6144,"intermediate_size":24576,"num_hidden_layers":44,
      "num_attention_heads":64,"rotary_pct":0.25})"},
    {"opt-125m", 125239296,
     R"({"model_type":"opt","vocab_size":50272,"hidden_size":768,"ffn_dim":3072,"num_hidden_layers":12,
      "num_attention_heads":12,"max_position_embeddings":2048,"word_embed_proj_dim":768,"do_layer_norm_before":true})"},
    {"opt-6.7b", 6658473984,
     R"({"model_type":"opt","vocab_size":50272,"hidden_size":4096,"ffn_dim":16384,"num_hidden_layers":32,
      "num_attention_heads":32,"max_position_embeddings":2048,"word_embed_proj_dim":4096})"},
    {"bloom-560m", 559214592, R"({"model_type":"bloom","vocab_size":250880,"hidden_size":1024,"n_layer":24,"n_head":16})"},
    {"bloom-7b1", 7069016064, R"({"model_type":"bloom","vocab_size":250880,"hidden_size":4096,"n_layer":30,"n_head":32})"},
    {"mpt-7b", 6649286656,
     R"({"model_type":"mpt","vocab_size":50432,"d_model":4096,"n_heads":32,"n_layers":32,"expansion_ratio":4,
      "max_seq_len":2048,"no_bias":true,"attn_config":{"alibi":true,"attn_type":"multihead_attention"}})"},
    {"phi-1_5", 1418270720,
     R"({"model_type":"phi","vocab_size":51200,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,
      "num_attention_heads":32,"partial_rotary_factor":0.5,"hidden_act":"gelu_new"})"},
    {"phi-2", 2779683840,
     R"({"model_type":"phi","vocab_size":51200,"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32,"partial_rotary_factor":0.4})"},
    {"granite-3.1-2b", 2533531648,
     R"({"model_type":"granite","vocab_size":49155,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":40,
      "num_attention_heads":32,"num_key_value_heads":8,"embedding_multiplier":12.0,"residual_multiplier":0.22,
      "attention_multiplier":0.015625,"logits_scaling":8.0,"tie_word_embeddings":true})"},
    {"SmolLM3-3B", 3075098624,
     R"({"model_type":"smollm3","vocab_size":128256,"hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,
      "num_attention_heads":16,"num_key_value_heads":4,"no_rope_layer_interval":4,"tie_word_embeddings":true})"},
    {"Minitron-4B", 4190509056,
     R"({"model_type":"nemotron","vocab_size":256000,"hidden_size":3072,"intermediate_size":9216,"num_hidden_layers":32,
      "num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,"partial_rotary_factor":0.5,"hidden_act":"relu2",
      "norm_eps":1e-05})"},
    {"c4ai-command-r-v01", 34980831232,
     R"({"model_type":"cohere","vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"num_hidden_layers":40,
      "num_attention_heads":64,"num_key_value_heads":64,"logit_scale":0.0625,"use_qk_norm":false})"},
    {"c4ai-command-r-plus", 103810674688,
     R"({"model_type":"cohere","vocab_size":256000,"hidden_size":12288,"intermediate_size":33792,"num_hidden_layers":64,
      "num_attention_heads":96,"num_key_value_heads":8,"use_qk_norm":true})"},
    {"glm-4-9b", 9399951360,
     R"({"model_type":"glm","vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,
      "num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,"attention_bias":true,"partial_rotary_factor":0.5,
      "rms_norm_eps":1.5625e-07})"},
    {"Llama-4-Scout, its decoder", 107769861120,
     R"({"model_type":"llama4_text","vocab_size":202048,"hidden_size":5120,"intermediate_size":8192,
      "intermediate_size_mlp":16384,"num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,
      "num_local_experts":16,"num_experts_per_tok":1,"interleave_moe_layer_step":1})"},
    {"Llama-4-Maverick, its decoder", 400711848960,
     R"({"model_type":"llama4_text","vocab_size":202048,"hidden_size":5120,"intermediate_size":8192,
      "intermediate_size_mlp":16384,"num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,
      "num_local_experts":128,"num_experts_per_tok":1,"interleave_moe_layer_step":2})"},
};

ModelConfig model_published(std::string_view name) {
  for (const Published& p : published)
    if (p.name == name) return model_from_json(p.config, p.name);
  throw Error(Code::bad_argument, "no such model");
}

TEST(Decoder, HasThePublishedParameters) {
  for (const Published& p : published) {
    const ModelConfig c = model_from_json(p.config, p.name);
    EXPECT_EQ(param_count(c), p.parameters) << p.name;
    std::int64_t sum = 0;
    for (const ParamSpec& s : param_table(decoder_of(c))) sum += s.shape.count();
    EXPECT_EQ(sum, p.parameters) << p.name << ": the decoder's own table";
    EXPECT_EQ(param_count(model_from_json(to_json(c), "again")), p.parameters) << p.name << " through its own JSON";
  }
  const auto active = [](const char* name) { return double(active_param_count(decoder_of(model_published(name)))) / 1e9; };
  EXPECT_NEAR(active("Mixtral-8x7B"), 12.9, 0.1) << "as published";
  EXPECT_NEAR(active("Qwen3-30B-A3B"), 3.3, 0.1);
  EXPECT_NEAR(active("Qwen3-235B-A22B"), 22, 0.3);
  EXPECT_NEAR(active("DeepSeek-V3"), 37, 0.7);
  EXPECT_NEAR(active("gpt-oss-120b"), 5.1, 0.7);
}

TEST(Decoder, WhatIsDenseIsTrainedTheRestSaysWhyNot) {
  for (const char* trained : {"Llama-2-7b", "Mistral-Nemo", "Qwen2.5-7B", "Qwen3-8B", "Phi-3-medium", "phi-4"}) {
    EXPECT_FALSE(model_published(trained).counted) << trained;
    EXPECT_FALSE(model_published(trained).decoder) << trained << " is as plain as ours";
  }
  for (const char* trained : {"Llama-3.1-8B", "Mistral-7B-v0.1", "Phi-3-mini", "gpt2", "gpt2-xl", "gemma-2b", "gemma-2-2b", "gemma-3-1b",
                              "gemma-3-4b, its decoder", "OLMo-2-7B"}) {
    EXPECT_FALSE(model_published(trained).counted) << trained;
    EXPECT_TRUE(model_published(trained).decoder) << trained;
  }
  const std::pair<const char*, const char*> counted[] = {{"Mixtral-8x7B", "mixture of experts"},
                                                         {"DeepSeek-V3", "latent attention"},
                                                         {"gpt-oss-20b", "sinks"},
                                                         {"Phi-4-mini", "without 'max_position_embeddings'"}};
  for (const auto& [name, why] : counted) {
    const ModelConfig c = model_published(name);
    ASSERT_TRUE(c.counted) << name;
    Arena arena;
    const Device device;
    Context ctx{arena, device};
    try {
      Training t(Recipe(c, 1, 8), ctx);
      ADD_FAILURE() << name << " was trained";
    } catch (const Error& e) {
      EXPECT_EQ(e.at.code, Code::unsupported);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(model_published("gemma-3-4b, its decoder").left_out.size(), 1u) << "the vision tower";
  EXPECT_EQ(model_published("DeepSeek-V3").left_out.size(), 2u) << "quantised weights, layers that predict further";
}

TEST(Decoder, ArithmeticThatChangesNoBytesIsReadToo) {
  const auto of = [](const char* name) { return decoder_of(model_published(name)); };
  const rope::Positions llama = of("Llama-3.1-8B").layers[0].attention.turned;
  EXPECT_EQ(llama, (rope::Positions{.theta = 500000, .scaling = rope::Scaling::llama3, .factor = 8, .original = 8192}));
  const Decoder gemma2 = of("gemma-2-2b"), gemma3 = of("gemma-3-4b, its decoder"), gpt2 = of("gpt2"), phi3 = of("Phi-3-mini");
  EXPECT_EQ(gemma2.layers[0].attention.softcap, 50);
  EXPECT_EQ(gemma2.logit_softcap, 30);
  EXPECT_EQ(gemma2.layers[0].attention.scale, 1.0 / 16);
  EXPECT_EQ(gemma2.embedding_scale, 48) << "the root of its width";
  EXPECT_EQ(gemma2.layers[0].ffn.function, activation::Function::gelu_tanh);
  EXPECT_EQ(gemma3.logit_softcap, 0);
  EXPECT_EQ(gemma3.layers[0].attention.turned, rope::Positions{.theta = 10000}) << "of a layer with a window";
  EXPECT_EQ(gemma3.layers[5].attention.turned, (rope::Positions{.theta = 1e6, .scaling = rope::Scaling::linear, .factor = 8}));
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_EQ(gpt2.layers[3].ffn.function, activation::Function::gelu_tanh);
  EXPECT_EQ(phi3.norm_eps, 1e-5);
  EXPECT_EQ(phi3.layers[3].attention.window, 2047);
  const std::string mistral = R"({"model_type":"mistral","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
    "num_attention_heads":4)";
  EXPECT_EQ(decoder_of(model_from_json(mistral + "}", "m")).layers[0].attention.window, 4096) << "its class's, where nothing is said";
  EXPECT_EQ(decoder_of(model_from_json(mistral + R"(,"sliding_window":null})", "m")).layers[0].attention.window, 0);
  EXPECT_TRUE(model_from_json(mistral + R"(,"rope_scaling":{"type":"yarn"}})", "m").counted) << "a factor is not guessed";
}

TEST(Decoder, KnowsWhoseOpsAreALlamas) {
  const auto as_llama = [](const char* name) { return computes_as_llama(decoder_of(model_published(name))); };
  for (const char* same : {"Llama-3.1-8B", "Mistral-7B-v0.1", "Qwen3-8B", "Phi-3-mini"}) EXPECT_TRUE(as_llama(same)) << same;
  for (const char* other : {"gpt2", "gemma-2-2b", "OLMo-2-7B"}) EXPECT_FALSE(as_llama(other)) << other;
}

TEST(Decoder, WindowsAreKeptByTheLayersThatHaveThem) {
  const auto windows = [](const char* name) {
    std::string each;
    for (const auto& l : decoder_of(model_published(name)).layers) each += l.attention.window > 0 ? 's' : 'f';
    return each;
  };
  EXPECT_EQ(windows("gemma-2-2b").substr(0, 6), "sfsfsf");
  EXPECT_EQ(windows("gemma-3-1b").substr(0, 12), "sssssfsssssf");
  EXPECT_EQ(windows("gpt-oss-20b").substr(0, 4), "sfsf");
}

TEST(Decoder, TheCacheKnowsGroupsLatentsAndWindows) {
  const DType bf16 = DType::bf16;
  const auto cache = [&](const char* name, std::int64_t len) { return cache_bytes(decoder_of(model_published(name)), 1, len, bf16); };
  EXPECT_EQ(cache("Llama-3.1-8B", 1), 32 * 2 * 8 * 128 * 2) << "128 KiB a token";
  EXPECT_EQ(cache("Llama-2-7b", 1), 32 * 2 * 4096 * 2) << "512 KiB a token";
  EXPECT_EQ(cache("DeepSeek-V3", 1000), 61 * 576 * 2 * 1000) << "a latent of 512 and 64 rotary";
  EXPECT_EQ(cache("gemma-2-2b", 100000), std::int64_t(13) * (4096 + 100000) * 2 * 4 * 256 * 2);
  for (const char* name : {"Llama-3.1-8B", "DeepSeek-V2-Lite", "gpt-oss-20b"}) {  // the dry run holds exactly that
    const Decoder d = decoder_of(model_published(name));
    const Device device;
    Ledger ledger;
    Arena arena(&ledger);
    Context ctx{arena, device};
    run_inference(d, {2, 300, *precision_named("bf16")}, Inference::prefill, ctx);
    std::int64_t bytes = 0;
    for (const Entry& e : ledger.entries())
      if (std::string_view(e.name.text) == "cache") bytes += std::int64_t(e.bytes);
    EXPECT_EQ(bytes, cache_bytes(d, 2, 300, bf16)) << name;
  }
}

// What the engine trains has two descriptions, its own passes and the counted ones: the same bytes, the same FLOPs.
TEST(Counted, IsTheStepWhereTheEngineHasOne) {
  const Random random{77};
  std::uint64_t at = 0;
  const auto among = [&](std::int64_t low, std::int64_t high) {
    return low + std::int64_t(random.below(at++, std::uint64_t(high - low + 1)));
  };
  const auto dense = dense_models();
  for (int trial = 0; trial < 240; ++trial) {
    Recipe r;
    r.model = tiny();
    r.model.kv_heads = among(1, 3), r.model.heads = r.model.kv_heads * among(1, 3), r.model.head_dim = 2 * among(1, 12);
    r.model.width = among(1, 70), r.model.layers = among(1, 4), r.model.ffn = among(1, 90), r.model.vocab = among(2, 700);
    r.model.tied = among(0, 1), r.model.qkv_bias = among(0, 1), r.model.qk_norm = among(0, 1);
    r.batch = among(1, 3), r.len = among(1, 50), r.loss_rows = among(0, 1) * among(1, 200);
    r.precision = *precision_named(std::array{"fp32", "bf16", "fp16"}[std::size_t(among(0, 2))]);
    r.attention = among(0, 1) ? "flash" : "plain";
    r.purpose = Purpose(among(0, 2));
    if (r.precision.dtype == DType::bf16) r.holding.masters = Masters(among(0, 1));
    if (r.precision.dtype != DType::f32) r.holding.gradients = Gradients(among(0, 1));
    if (r.precision.dtype != DType::f16 && !r.model.tied) r.holding.updating = Updating(among(0, 1));
    if (r.holding.masters == Masters::halves && r.holding.updating == Updating::during && among(0, 1))
      r.holding.gradients = Gradients::none;
    r.keep.levels.clear();
    for (std::int64_t l = among(0, 1) ? 1 : r.model.layers; l > 0; --l) r.keep.levels.push_back(Keep(among(0, 4)));
    if (std::int64_t(r.keep.levels.size()) != r.model.layers) r.keep.levels.resize(1);
    if (trial >= 120) {  // what is not as plain
      r.model = dense[std::size_t(trial) % dense.size()].config;
      r.keep.levels.resize(r.keep.levels.size() > 1 ? 2 : 1, Keep(among(0, 4)));
      if (r.model.tied) r.holding.updating = Updating::after, r.holding.gradients = std::min(r.holding.gradients, Gradients::half);
    }
    if (r.keep.levels.size() == 1) r.keep.group = int(among(1, r.model.layers));
    Device device;
    if (among(0, 1)) device.kind = DeviceKind::cuda, device.sm = 90;
    if (r.holding.gradients == Gradients::none && device.kind == DeviceKind::cuda)
      r.holding.gradients = Gradients::half;  // not of such widths
    if (r.holding.gradients != Gradients::none && among(0, 2) == 0) r.ranks = {int(among(2, 5)), Sharding(among(0, 3))};
    if (r.holding.updating == Updating::after && among(0, 2) == 0) r.micro_batches = int(among(2, 3));
    const int workers = device.kind == DeviceKind::cpu ? int(among(1, 3)) : 1;
    SCOPED_TRACE(fmt::format("trial {}: {} batch {} len {} {} {} keep {} purpose {} {} {} {} {}", trial, to_json(r.model), r.batch, r.len,
                             name_of(r.precision), r.attention, WordsOf<Keeping>::to(r.kept_as()), int(r.purpose),
                             name_of(r.holding.masters), name_of(r.holding.gradients), name_of(r.holding.updating), device.sm));
    Forecast f;
    try {
      f = forecast(r, device, workers);
    } catch (const Error& e) { FAIL() << "the engine's own: " << e.what(); }
    Recipe other = r;  // the same model, as one that is only counted
    Decoder d = decoder_of(r.model);
    other.model.counted = std::make_shared<const Decoder>(std::move(d));
    const Forecast counted = forecast(other, device, workers);
    EXPECT_EQ(counted.standing_bytes, f.standing_bytes);
    EXPECT_EQ(counted.peak_bytes, f.peak_bytes);
    EXPECT_EQ(counted.link_bytes, f.link_bytes);
    EXPECT_NEAR(counted.model_flops, f.model_flops, 1e-9 * f.model_flops);
    EXPECT_NEAR(counted.flops, f.flops, 1e-9 * f.flops);
  }
}

TEST(Counted, StepsAndInferenceOfEveryPublishedModelAddUp) {
  const Device h200 = device_described("h200");
  for (const Published& p : published) {
    SCOPED_TRACE(p.name);
    const ModelConfig c = model_from_json(p.config, p.name);
    Recipe r{c, 1, 256, *precision_named("bf16")};
    const Forecast all = forecast(r, h200, 1);
    r.keep = {Keep::input};
    const Forecast least = forecast(r, h200, 1);
    EXPECT_LT(least.peak_bytes, all.peak_bytes);
    const double state = (c.tied ? 18.0 : 18.0) * double(p.parameters);
    EXPECT_NEAR(double(all.standing_bytes) / state, 1, 0.12) << "18 bytes a weight, 16 of an embedding that is only looked up";
    EXPECT_GT(all.flops, all.model_flops * 0.9);
    r.keep = {Keep::everything}, r.ranks = {8, Sharding::everything};
    const std::size_t shared = forecast(r, h200, 1).standing_bytes;  // an eighth, and whole groups on loan
    EXPECT_GE(shared, all.standing_bytes / 8);
    EXPECT_LT(shared, all.standing_bytes * 7 / 10);
    const Decoder d = decoder_of(c);
    std::size_t peaks[2];
    for (const Inference how : {Inference::prefill, Inference::decode}) {
      Arena arena;
      Context ctx{arena, h200};
      run_inference(d, {1, 1024, *precision_named("bf16")}, how, ctx);
      peaks[int(how)] = arena.peak();
      EXPECT_GT(arena.peak(), std::size_t(2 * p.parameters + cache_bytes(d, 1, 1024, DType::bf16)));
    }
    EXPECT_GT(peaks[0], peaks[1]);
  }
}

void expect_refused(const std::string& config, const std::string& word, Code code = Code::bad_argument) {
  try {
    model_from_json(config, "file");
    ADD_FAILURE() << "accepted: " << config;
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(int(e.at.code), int(code)) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_NE(what.find(word), std::string::npos) << what;
  }
}

// In published files: keys that transformers reads by no class, other names, and what a class leaves open.
TEST(Decoder, AKeyThatChangesNothingIsPassedOverAndNamed) {
  const auto with = [](const char* name, const char* more) {
    nlohmann::json config;
    for (const Published& p : published)
      if (std::string_view(p.name) == name) config = nlohmann::json::parse(p.config);
    config.update(nlohmann::json::parse(more));
    return model_from_json(config.dump(), name);
  };
  const std::tuple<const char*, const char*, const char*> unread[] = {
      {"gpt2", R"({"n_special":0,"predict_special_tokens":true})", "n_special, predict_special_tokens"},
      {"gemma-2-2b", R"({"sliding_window_size":4096})", "sliding_window_size"},
      {"phi-4", R"({"full_attn_mod":1,"interpolate_factor":1})", "full_attn_mod, interpolate_factor"},
      {"Llama-2-7b", R"({"is_llama_config":true,"_num_labels":2})", "_num_labels, is_llama_config"}};
  for (const auto& [name, more, words] : unread) {
    const ModelConfig c = with(name, more);
    EXPECT_EQ(param_count(c), param_count(model_published(name)));
    ASSERT_EQ(c.left_out.size(), 1u) << name;
    EXPECT_NE(c.left_out[0].find(words), std::string::npos) << c.left_out[0];
  }
  nlohmann::json saved_anew;
  for (const Published& p : published)
    if (std::string_view(p.name) == "Qwen3-30B-A3B") saved_anew = nlohmann::json::parse(p.config);
  saved_anew["num_local_experts"] = saved_anew["num_experts"], saved_anew.erase("num_experts");
  EXPECT_EQ(param_count(model_from_json(saved_anew.dump(), "by transformers 5")), param_count(model_published("Qwen3-30B-A3B")));
  expect_refused(
      R"({"model_type":"qwen2","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
    "dual_chunk_attention_config":{"chunk_size":8}})",
      "dual_chunk_attention_config", Code::unsupported);
  const ModelConfig open = model_from_json(R"({"model_type":"deepseek_v2","vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"q_lora_rank":16,"kv_lora_rank":8,"qk_nope_head_dim":8,"qk_rope_head_dim":4,"v_head_dim":8,
    "moe_intermediate_size":16,"n_routed_experts":4,"num_experts_per_tok":null})",
                                           "open");
  EXPECT_NE(open.left_out.at(0).find("num_experts_per_tok is null"), std::string::npos);
}

TEST(Decoder, RefusesWhatItDoesNotKnowByName) {
  const std::string llama = R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,)";
  expect_refused(llama + R"("num_attention_heads":4,"num_kv_heads":2})", "did you mean 'num_key_value_heads'");
  expect_refused(llama + R"("num_attention_head":4})", "it has 'num_attention_head'");
  expect_refused(llama + R"("num_attention_heads":4,"num_experts":8})", "num_experts");
  expect_refused(llama + R"("num_attention_heads":4,"rope_scaling":{"rope_type":"spiral"}})", "spiral");
  expect_refused(llama + R"("num_attention_heads":"four"})", "whole number");
  expect_refused(llama + R"("num_attention_heads":0})", "at least 1");
  EXPECT_NO_THROW(model_from_json(llama + R"("num_attention_heads":4,"some_new_flag":false,"another":null,"list":[]})", "file"));
  expect_refused(R"({"hidden_size":64,"num_local_experts":8,"vocab_size":10})", "model_type");
  expect_refused(R"({"model_type":"gpt3","n_embd":64})", "gpt2");
  expect_refused(R"({"model_type":"llama4","hidden_size":64})", "llama4");
  expect_refused(R"({"model_type":"gemma3","hidden_size":64})", "text_config");
  expect_refused(R"({"model_type":7})", "text in quotes");
  expect_refused(R"({"vocab":10,"width":8,"layers":1,"heads":1,"ffn":8,"num_experts":4})", "num_experts");
  const std::string gpt2 = R"({"model_type":"gpt2","n_embd":64,"n_layer":1,"n_head":4,)";
  expect_refused(gpt2 + R"("activation_function":"gleu"})", "gleu");
  expect_refused(llama + R"("num_attention_heads":4,"layer_types":["full","full"]})", "is not known of llama");
  // What is known and not counted is another thing than what nobody knows.
  expect_refused(gpt2 + R"("add_cross_attention":true})", "a decoder alone is counted", Code::unsupported);
  expect_refused(R"({"model_type":"phi3","vocab_size":100,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
    "num_attention_heads":4,"attention_bias":true})",
                 "biases of phi3", Code::unsupported);
  // Every number of every published file, made impossible: a refusal in one line, never a count.
  for (const Published& p : published) {
    const nlohmann::json whole = nlohmann::json::parse(p.config);
    for (const auto& [key, value] : whole.items()) {
      if (!value.is_number_integer()) continue;
      for (const nlohmann::json& bad :
           {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1), nlohmann::json("8"), nlohmann::json(1e30), nlohmann::json(2147483647),
            nlohmann::json(-9223372036854775807 - 1), nlohmann::json(9223372036854775807), nlohmann::json(18446744073709551615u)}) {
        nlohmann::json other = whole;
        other[key] = bad;
        try {
          EXPECT_GT(param_count(model_from_json(other.dump(), p.name)), 0) << p.name << " " << key;
        } catch (const Error& e) { EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what(); }
      }
    }
  }
}

}  // namespace
}  // namespace headroom::engine
