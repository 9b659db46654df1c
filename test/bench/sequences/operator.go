package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// operatorRunner runs the load with a release build of the operator.
type operatorRunner struct{ binary string }

func (r operatorRunner) startProcess(ctx context.Context, c *harness.Cluster, _ sequenceLoad, ns string) (*testenv.Process, error) {
	operator, err := testenv.StartOperator(ctx, r.binary, c.Cluster, "--namespaces", ns)
	if err != nil {
		return nil, err
	}
	return operator.Process, nil
}

func (operatorRunner) createLoad(ctx context.Context, c *harness.Cluster, l sequenceLoad, ns string) error {
	return l.createObjects(ctx, c, func(i int) client.Object { return l.newSequentialJob(i, ns) })
}
