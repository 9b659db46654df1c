package main

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/demo/cluster"
	"github.com/yardmaster/yardmaster/test/demo/scenario"
)

// The namespaces of the examples and of the operator.
const (
	sequencesNamespace = "yardmaster-demo"
	staleNamespace     = "yardmaster-demo-stale"
	ordersNamespace    = "yardmaster-demo-orders"
	sessionsNamespace  = "yardmaster-demo-sessions"
	operatorNamespace  = "yardmaster-system"
)

// demo is one performance.
type demo struct {
	*stage

	sequences *sequences
	stale     *stale
	orders    *orders
	sessions  *sessions
}

func newDemo(where cluster.Cluster, screen *terminal.Screen, limit time.Duration) *demo {
	s := &stage{cluster: where, screen: screen, limit: limit}
	return &demo{
		stage: s, sequences: &sequences{stage: s}, stale: &stale{stage: s}, orders: &orders{stage: s}, sessions: &sessions{stage: s},
	}
}

// sequences is the act of the SequentialJobs.
type sequences struct {
	*stage

	examples []*played
}

// played is an example on its way.
type played struct {
	scenario.Example
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
	d.title("Jobs that nobody looks after")
	if err := d.stale.plant(ctx); err != nil {
		return err
	}
	d.title("The operator, in the cluster, with its webhook")
	if err := d.deploy(ctx, d.stale.settings()); err != nil {
		return d.explainOperator(ctx, err)
	}
	if err := d.sequences.play(ctx); err != nil {
		return err
	}
	if err := d.stale.play(ctx); err != nil {
		return err
	}
	if err := d.orders.play(ctx); err != nil {
		return err
	}
	if err := d.sessions.play(ctx); err != nil {
		return err
	}
	d.title("What to look at next")
	d.showNext()
	return nil
}

func (a *sequences) play(ctx context.Context) error {
	a.title("SequentialJobs: one step after another")
	if err := a.apply(ctx); err != nil {
		return a.explainError(ctx, err)
	}
	if err := a.follow(ctx); err != nil {
		return a.explainError(ctx, err)
	}
	if err := a.judge(ctx); err != nil {
		return err
	}
	a.title("What kubectl shows of them")
	a.showKubectl(ctx)
	return nil
}
