package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// waitTimeout bounds every wait.
const waitTimeout = 10 * time.Minute

// environment is a namespace with sessions.
type environment struct {
	harness.Environment
	sessions, burst, bursts, single int

	// created contains all sessions in the order of their creation.
	created []*v1alpha1.AgenticSession
}

// createNamespace creates the namespace and a SessionRunner, whose Pods run for hours on the simulated nodes.
func (env *environment) createNamespace(ctx context.Context, c client.Client) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(env.Environment), Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
	runner := &v1alpha1.SessionRunner{ObjectMeta: env.ObjectMeta("default")}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "registry.example/runner:1", new(int64(65532))
	runner.Spec.Template.Annotations = endless
	return errors.Join(c.Create(ctx, ns), c.Create(ctx, runner))
}

// endless are the annotations of a Pod that runs until it is deleted.
var endless = map[string]string{"sim.localcluster.dev/duration": "10h"}

func (env *environment) startSessions(ctx context.Context, c client.Client, o *objectObserver) error {
	if err := env.createSessions(ctx, c, env.sessions, harness.CreateConcurrency, nil); err != nil {
		return err
	}
	return env.waitUntilRunning(ctx, c, o)
}

// createSessions creates the given number of sessions with the given concurrency, and calls
// stored after the API server has confirmed each of them.
func (env *environment) createSessions(ctx context.Context, c client.Client, number, atOnce int, stored func(*v1alpha1.AgenticSession)) error {
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for range number {
		s := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(fmt.Sprintf("s%05d", len(env.created)))}
		s.Spec.Prompt = "Do the work."
		env.created = append(env.created, s)
		group.Go(func() error {
			if err := c.Create(requests, s); err != nil {
				return err
			}
			if stored != nil {
				stored(s)
			}
			return nil
		})
	}
	return group.Wait()
}

// waitUntilRunning waits until all created sessions run. It polls slowly, because lists of
// thousands of objects would add load to the control plane.
func (env *environment) waitUntilRunning(ctx context.Context, c client.Reader, o *objectObserver) error {
	reportedAt := time.Now()
	return harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		running, err := env.countRunning(ctx, c)
		if err != nil || running == len(env.created) {
			return true, err
		}
		if time.Since(reportedAt) > 10*time.Second {
			reportedAt = time.Now()
			harness.PrintProgress("%d of %d sessions run", running, len(env.created))
		}
		return false, errors.Join(o.watchError(), clock.SleepContext(ctx, time.Second))
	})
}

func (env *environment) countRunning(ctx context.Context, c client.Reader) (running int, err error) {
	var list v1alpha1.AgenticSessionList
	if err := c.List(ctx, &list, client.InNamespace(string(env.Environment))); err != nil {
		return 0, err
	}
	for i := range list.Items {
		switch s := &list.Items[i]; s.Status.Phase {
		case v1alpha1.SessionRunning:
			running++
		case v1alpha1.SessionCompleted, v1alpha1.SessionFailed, v1alpha1.SessionStopped:
			return 0, fmt.Errorf("%s is %s: %+v", s.Name, s.Status.Phase, s.Status.Attempts)
		default:
		}
	}
	return running, nil
}
