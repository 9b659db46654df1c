package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// bareLoopRunner runs the load with the bare loop in a process of its own.
type bareLoopRunner struct{}

func (bareLoopRunner) startProcess(ctx context.Context, c *harness.Cluster, l sequenceLoad, ns string) (*testenv.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, self, bareLoopRole, c.Kubeconfig, ns, strconv.Itoa(l.steps), strconv.Itoa(l.sequences)+"x"+l.stepDuration.String())
	command.Stderr = os.Stderr
	return testenv.StartProcess(command)
}

// createLoad does nothing, because the bare loop creates the first Jobs itself.
func (bareLoopRunner) createLoad(context.Context, *harness.Cluster, sequenceLoad, string) error {
	return nil
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
	steps, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	l, err := parseLoad(args[4], steps)
	if err != nil {
		return err
	}
	jobs, err := c.Watch(ctx, &batchv1.JobList{}, client.InNamespace(ns))
	if err != nil {
		return err
	}
	defer jobs.Stop()
	failed := make(chan error, 1)
	go func() {
		failed <- l.createObjects(ctx, c, func(i int) client.Object { return l.newJob(i, 0, ns) })
	}()
	for ended := map[string]bool{}; len(ended) < l.jobCount(); {
		select {
		case err := <-failed:
			if err != nil {
				return err
			}
			failed = nil
		case event, ok := <-jobs.ResultChan():
			if !ok {
				return errors.New("the watch of Jobs ended")
			}
			if job, ok := event.Object.(*batchv1.Job); ok && sequentialjob.IsTerminal(job) && !ended[job.Name] {
				ended[job.Name] = true
				go l.createNextJob(ctx, c, job)
			}
		}
	}
	return nil
}

// createNextJob creates the Job of the step after the one that ended.
func (l sequenceLoad) createNextJob(ctx context.Context, c client.Client, ended *batchv1.Job) {
	sequence, err := strconv.Atoi(ended.Labels[labelSequence])
	if err != nil {
		return
	}
	step, err := strconv.Atoi(ended.Labels[labelStep])
	if err != nil || step+1 >= l.steps {
		return
	}
	if err := c.Create(ctx, l.newJob(sequence, step+1, ended.Namespace)); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}
