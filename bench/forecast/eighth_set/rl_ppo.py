"""CleanRL's ppo.py as it is (the folder of SCRIPTS has it), with larger batches, in a world of gymnasium that is made up."""
import os
import runpy
import sys
import tempfile
import gymnasium
import numpy
class World(gymnasium.Env):
    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (8000,), numpy.float32)
        self.action_space = gymnasium.spaces.Discrete(9)
        self.turn, self.looks = 0, numpy.random.uniform(-1, 1, (50, 8000)).astype("float32")
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.looks[0], {}
    def step(self, action):
        self.turn += 1
        return self.looks[self.turn % 50], 1.0, self.turn % 50 == 0, False, {}
gymnasium.register("Turns-v0", lambda **k: World())
os.chdir(tempfile.mkdtemp())
sys.argv = ["ppo", "--update-epochs", "2", "--env-id", "Turns-v0", "--num-envs", "64", "--num-steps", "128", "--num-minibatches", "2", "--total-timesteps", "16384"]
runpy.run_path(os.environ["SCRIPTS"] + "/cleanrl_ppo.py", run_name="__main__")
