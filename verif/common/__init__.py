"""Stream agents, scoreboards and stimulus shared by the benches."""
