"""Job files of other systems as TrainingJobs. Pure, except for `yaml_file`, which parses YAML."""
