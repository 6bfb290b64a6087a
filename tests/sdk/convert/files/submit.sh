paddlecloud submit -jobname word2vec -cpu 2 -gpu 1 -memory 4Gi -parallelism 3 \
  -pservers 2 -pscpu 1 -psmemory 2Gi -passes 5 -topology "python conf.py" \
  -image my/paddle -registry secret -min_instance 2 -max_instance 9 -faulttolerant=true \
  -entry "python train.py" ./word2vec
