"""peft: LoRA begun by PiSSA and by OLoRA on the card, embeddings adapted too, one more layer trained in full; adapters saved and loaded."""
import tempfile
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import MistralConfig, MistralForCausalLM
torch.manual_seed(0)
config = MistralConfig(vocab_size=10007, hidden_size=576, intermediate_size=1400, num_hidden_layers=4, num_attention_heads=9, num_key_value_heads=3, sliding_window=128)
for init in ("pissa_niter_4", "olora"):
    torch.manual_seed(1)
    base = MistralForCausalLM(config).cuda()
    model = get_peft_model(base, LoraConfig(r=12, lora_alpha=12, init_lora_weights=init, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "embed_tokens"],
                                            modules_to_save=["lm_head"], use_rslora=True))
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 1e-4)
    for _ in range(3):
        ids = torch.randint(0, 10007, (4, 450), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(init, loss.item())
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    model = PeftModel.from_pretrained(MistralForCausalLM(config), folder).cuda().eval()
    with torch.no_grad():
        print(model(input_ids=ids).logits.shape)
