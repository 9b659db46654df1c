package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/hack/demo/board"
	"github.com/yardmaster/yardmaster/hack/demo/cluster"
	"github.com/yardmaster/yardmaster/hack/demo/story"
)

// The namespaces of the examples and of the operator.
const (
	namespace         = "yardmaster-demo"
	operatorNamespace = "yardmaster-system"
)

// demo is one performance.
type demo struct {
	cluster cluster.Cluster
	screen  *board.Screen
	limit   time.Duration

	kubeconfig string
	client     client.Client
	logs       kubernetes.Interface
	examples   []*played
}

// played is an example on its way.
type played struct {
	story.Example
	acted bool
	// phaseSince is when the demo first saw it in the phase it is in.
	phaseSince time.Time
}

// play goes through the acts of the demo.
func (d *demo) play(ctx context.Context) error {
	d.title("A cluster")
	if err := d.cluster.Up(ctx); err != nil {
		return err
	}
	if err := d.connect(ctx); err != nil {
		return err
	}
	d.title("The operator, in the cluster, with its webhook")
	if err := d.deploy(ctx); err != nil {
		return d.explainOperator(ctx, err)
	}
	d.title("The examples")
	if err := d.apply(ctx); err != nil {
		return d.explainOperator(ctx, err)
	}
	if err := d.follow(ctx); err != nil {
		return d.explainOperator(ctx, err)
	}
	if err := d.judge(ctx); err != nil {
		return err
	}
	d.title("What kubectl shows")
	d.showKubectl(ctx)
	d.title("What to look at next")
	d.showNext()
	return nil
}

func (d *demo) title(text string) {
	d.screen.Say("\n%s", d.screen.Bold("== "+text))
}

// timed does something and says how long it took.
func (d *demo) timed(what string, do func() error) error {
	started := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	d.screen.Say("  %s (%s)", what, time.Since(started).Round(time.Second/10))
	return nil
}
