"""CleanRL's dqn.py, c51.py and td3_continuous_action.py as they are (the folder of SCRIPTS has them), one after another, in worlds of gymnasium that are made up."""
import os
import runpy
import sys
import tempfile
import gymnasium
import numpy
class World(gymnasium.Env):
    def __init__(self, goes=False, render_mode=None):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (64,), numpy.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (6,), numpy.float32) if goes else gymnasium.spaces.Discrete(5)
        self.turn = 0
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return numpy.random.uniform(-1, 1, 64).astype('float32'), {}
    def step(self, action):
        self.turn += 1
        return numpy.random.uniform(-1, 1, 64).astype('float32'), 1.0, self.turn % 50 == 0, False, {}
gymnasium.register("Turns-v0", lambda **k: World(False))
gymnasium.register("Goes-v0", lambda **k: World(True))
scripts = os.environ["SCRIPTS"]
sys.path.insert(0, scripts)
os.chdir(tempfile.mkdtemp())
for name, more in (("dqn", ["--env-id", "Turns-v0", "--train-frequency", "2"]), ("c51", ["--env-id", "Turns-v0", "--train-frequency", "2"]), ("td3_continuous_action", ["--env-id", "Goes-v0"])):
    sys.argv = [name, "--total-timesteps", "260", "--learning-starts", "100", "--buffer-size", "1000", "--batch-size", "1024", *more]
    runpy.run_path(f"{scripts}/cleanrl_{name}.py", run_name="__main__")
