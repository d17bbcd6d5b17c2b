"""headroom forecast on programs of several ranks, without a GPU. Exit code 77: skipped."""

import json
import os
import subprocess
import sys
import unittest

from program_forecasts import PROGRAM, ProgramForecasts


class Ranks(ProgramForecasts):
    def test_each_of_two_ranks_is_told(self):
        text = """
            import os, torch
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            dist.init_process_group("nccl")
            rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(rank)
            model = DistributedDataParallel(torch.nn.Linear(1024, 1024 * (1 + rank * 0), device="cuda"), device_ids=[rank])
            optimizer = torch.optim.SGD(model.parameters())
            for _ in range(3):
                model(torch.ones(64 * (rank + 1), 1024, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            dist.destroy_process_group()
            """
        path = self.file("ranks.py", text)
        command = [PROGRAM, "forecast", "--format", "json", "--device", "h100", "--db", os.path.join(self.folder.name, "results.db"), "--"]
        command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", path]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        answer = json.loads(ended.stdout)
        self.assertEqual(sorted(row["rank"] for row in answer["ranks"]), [0, 1])
        self.assertTrue(answer["fits"])

    def test_objects_of_ranks_are_gathered_and_scattered(self):
        text = """
            import os, torch
            import torch.distributed as dist
            import torch.distributed.checkpoint as checkpoint
            from torch.distributed.fsdp import fully_shard
            rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(rank)
            dist.init_process_group("nccl")
            gathered, mine = [None] * 2, [None]
            dist.gather_object("r" * (rank + 1), gathered if rank == 0 else None)
            dist.scatter_object_list(mine, ["a", "longer"] if rank == 0 else None)
            os.write(1, f"SEEN {rank} {gathered} {mine}\\n".encode())
            model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).cuda()
            fully_shard(model)
            model(torch.randn(8, 64, device="cuda")).sum().backward()
            checkpoint.save({"model": model.state_dict()}, checkpoint_id=os.path.join(os.environ["FOLDER"], "saved"))
            dist.destroy_process_group()
            """
        path = self.file("objects.py", text)
        command = [PROGRAM, "forecast", "--format", "json", "--device", "h100", "--db", os.path.join(self.folder.name, "results.db"), "--"]
        command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", path]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, "FOLDER": self.folder.name})
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        self.assertIn("SEEN 0 ['r', 'rr'] ['a']", ended.stderr)
        self.assertIn("SEEN 1 [None, None] ['longer']", ended.stderr)

    def test_one_host_of_two_is_run_and_told_the_whole_world(self):
        text = """
            import os, torch
            import torch.distributed as dist
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl")
            said = [None] * dist.get_world_size()
            dist.all_gather_object(said, os.environ["LOCAL_RANK"])
            os.write(1, f"SEEN {dist.get_world_size()} {' '.join(said)}\\n".encode())
            x = torch.empty((1 << 30) // dist.get_world_size(), dtype=torch.uint8, device="cuda")
            dist.destroy_process_group()
            """
        path = self.file("hosts.py", text)
        command = [PROGRAM, "forecast", "--format", "json", "--device", "h100", "--db", os.path.join(self.folder.name, "results.db"), "--"]
        command += [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2",
                    "--master-addr", "no.such.host", path]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        self.assertEqual(ended.stderr.count("SEEN 4 0 1 0 1"), 2, ended.stderr[-3000:])
        answer = json.loads(ended.stdout)
        self.assertEqual(len(answer["ranks"]), 2)
        self.assertGreaterEqual(answer["peak_allocated_bytes"], 1 << 28)
        self.assertLess(answer["peak_allocated_bytes"], 1 << 29)
        self.assertIn("one host", " ".join(row["text"] for row in answer["uncertain"]["said"]))
        alone = {"WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
        ended = subprocess.run([*command[:command.index("--") + 1], sys.executable, path], env={**os.environ, **alone},
                               capture_output=True, text=True, timeout=600)
        self.assertEqual(ended.returncode, 0, ended.stderr[-3000:])
        self.assertIn("SEEN 4 0 0 0 0", ended.stderr)
        self.assertEqual(json.loads(ended.stdout)["beside_bytes"], answer["beside_bytes"], "a rank alone on its host has NCCL's buffers, too")


if __name__ == "__main__":
    unittest.main()
