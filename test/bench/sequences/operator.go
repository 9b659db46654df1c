package main

import (
	"context"
	"os/exec"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// operatorRunner runs the load with a release build of the operator.
type operatorRunner struct{ binary string }

func (r operatorRunner) startProcess(ctx context.Context, c *harness.Cluster, _ sequenceLoad, ns string) (*exec.Cmd, error) {
	return harness.StartOperator(ctx, r.binary, c, "--namespaces", ns)
}

func (operatorRunner) createLoad(ctx context.Context, c *harness.Cluster, l sequenceLoad, ns string) error {
	return l.createObjects(ctx, c, func(i int) client.Object { return l.newSequentialJob(i, ns) })
}
