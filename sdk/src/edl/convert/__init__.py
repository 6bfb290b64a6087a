"""Converts other systems' job files to TrainingJobs.

The modules are pure, except for `yaml_file`, which reads files and parses YAML.
"""
