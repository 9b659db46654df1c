package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// startProcess starts the operator, or without its binary the bare loop, which creates the Jobs itself.
func (l sequenceLoad) startProcess(ctx context.Context, c *harness.Cluster, operator, ns string) (*testenv.Process, error) {
	if operator != "" {
		started, err := testenv.StartOperator(ctx, operator, c.Cluster, "--namespaces", ns)
		if err != nil {
			return nil, err
		}
		return started.Process, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, self, bareLoopRole, c.Kubeconfig, ns, strconv.Itoa(l.steps), strconv.Itoa(l.sequences)+"x"+l.stepDuration.String())
	command.Stderr = os.Stderr
	return testenv.StartProcess(command)
}

// runBareLoop is the least that can run sequences: it watches Jobs and creates the next one
// when one has ended. It stores no status, so a restart would lose its state.
func runBareLoop(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("%s KUBECONFIG NAMESPACE STEPS LOAD", args[0])
	}
	c, err := harness.ConnectToCluster(args[1])
	if err != nil {
		return err
	}
	ns := args[2]
	steps, stepsErr := strconv.Atoi(args[3])
	l, err := parseLoad(args[4], steps)
	if err := errors.Join(stepsErr, err); err != nil {
		return err
	}
	jobs, err := c.Watch(ctx, &batchv1.JobList{}, client.InNamespace(ns))
	if err != nil {
		return err
	}
	defer jobs.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.createObjects(ctx, c, func(i int) client.Object { return l.newJob(i, 0, ns) }) })
	group.Go(func() error {
		ended := map[string]bool{}
		for event := range jobs.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok && sequentialjob.IsTerminal(job) && !ended[job.Name] {
				ended[job.Name] = true
				group.Go(func() error { return l.createNextJob(ctx, c, job) })
			}
			if len(ended) == l.jobCount() {
				return nil
			}
		}
		return errors.New("the watch of Jobs ended")
	})
	return group.Wait()
}

func (l sequenceLoad) createNextJob(ctx context.Context, c client.Client, ended *batchv1.Job) error {
	sequence, err := strconv.Atoi(ended.Labels[labelSequence])
	if err != nil {
		return err
	}
	step, err := strconv.Atoi(ended.Labels[labelStep])
	if err != nil || step+1 >= l.steps {
		return err
	}
	return c.Create(ctx, l.newJob(sequence, step+1, ended.Namespace))
}
