"""stable-baselines3: PPO on pictures by its own convolutions, then SAC on numbers, each with learn(); the worlds are made up."""
import gymnasium
import numpy
from stable_baselines3 import PPO, SAC
class World(gymnasium.Env):
    def __init__(self, pictures):
        self.pictures = pictures
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), numpy.uint8) if pictures else gymnasium.spaces.Box(-1, 1, (60,), numpy.float32)
        self.action_space = gymnasium.spaces.Discrete(6) if pictures else gymnasium.spaces.Box(-1, 1, (12,), numpy.float32)
        self.turn = 0
    def look(self):
        return self.observation_space.sample()
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.look(), {}
    def step(self, action):
        self.turn += 1
        return self.look(), float(self.turn % 3), self.turn % 40 == 0, False, {}
model = PPO("CnnPolicy", World(True), n_steps=128, batch_size=64, n_epochs=2, device="cuda", verbose=0, seed=0)
model.learn(256)
other = SAC("MlpPolicy", World(False), buffer_size=2000, learning_starts=100, batch_size=256, device="cuda", policy_kwargs={"net_arch": [512, 512]}, seed=0)
other.learn(160)
print(model.predict(World(True).look())[0], other.predict(World(False).look())[0].shape)
