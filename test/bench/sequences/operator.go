package main

import (
	"context"
	"os/exec"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// operatorRunner runs the load with the operator, as it is built.
type operatorRunner struct{ binary string }

func (r operatorRunner) start(ctx context.Context, c *harness.Cluster, _ load, ns string) (*exec.Cmd, error) {
	return harness.StartOperator(ctx, r.binary, c, "--namespaces", ns)
}

func (operatorRunner) bringIn(ctx context.Context, c *harness.Cluster, l load, ns string) error {
	return l.bringIn(ctx, c, func(i int) client.Object { return l.sequentialJob(i, ns) })
}
