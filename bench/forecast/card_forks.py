"""Work in forks of a process that has imported what takes long and has not begun the driver, which no fork could use then."""
import json
import os
import signal
import sys
import tempfile
import time
import traceback

SLOW_IMPORTS = ["transformers", "transformers.models.llama.modeling_llama", "transformers.models.gpt2.modeling_gpt2", "transformers.trainer", "accelerate"]


def exit_code_of(work):
    """Of a fork that ends with the code that work() returns, 1 where it raises."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def result_of(work, log, seconds, environment):
    """What work() returns in a fork, by way of JSON; None where it crashes or takes longer. What it prints goes to the log."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                os.environ.update(environment)
                file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(file, 1)
                os.dup2(file, 2)
                result = work()
                with open(path + ".new", "w") as f:
                    json.dump(result, f)
                os.rename(path + ".new", path)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        end = time.perf_counter() + seconds
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.perf_counter() >= end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(0.02)
        if not os.path.exists(path):
            return None
        with open(path) as f:
            return json.load(f)


def import_without_card(modules):
    """Imports modules that ask whether there is a card; the driver would begin with that."""
    import torch
    import torch.profiler  # noqa: F401
    kept = torch.cuda.is_available, torch.cuda.device_count
    torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 1)
    try:
        for name in modules:
            try:
                __import__(name)
            except Exception as e:
                print(f"{name}: {e}", file=sys.stderr)
    finally:
        torch.cuda.is_available, torch.cuda.device_count = kept


def forks_have_the_card():
    def begin():
        import torch
        torch.zeros(1, device="cuda")
        return 0

    return exit_code_of(begin) == 0


def prepared(work):
    """Runs work() in a fork whose forks can use the card, with as many modules imported before as that allows."""
    NO_CARD = 9

    def with_imports(modules):
        import_without_card(modules)
        if not forks_have_the_card():
            return NO_CARD
        work()
        return 0

    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # torch.cuda.is_available() then leaves the driver alone
    if exit_code_of(lambda: with_imports(SLOW_IMPORTS)) == NO_CARD:
        print("forks have no card after these imports; once more without them", flush=True)
        exit_code_of(lambda: with_imports([]))
