package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const healthAddress = "127.0.0.1:18981"

// operatorRunner runs the load with the operator, as it is built.
type operatorRunner struct{ binary string }

func (r operatorRunner) start(ctx context.Context, c *cluster, _ load, ns string) (*exec.Cmd, error) {
	command := exec.CommandContext(ctx, r.binary,
		"--namespaces", ns, "--leader-elect=false", "--webhook=false",
		"--metrics-bind-address=0", "--health-probe-bind-address="+healthAddress)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	log, err := os.Create("dist/bench-operator.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, err
	}
	return command, poll(ctx, time.Minute, func() (bool, error) { return healthy(ctx), nil })
}

func healthy(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthAddress+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (operatorRunner) bringIn(ctx context.Context, c *cluster, l load, ns string) error {
	return l.bringIn(ctx, c, func(i int) client.Object { return l.sequentialJob(i, ns) })
}
