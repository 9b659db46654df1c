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

// demoRun is one run of the demo.
type demoRun struct {
	*demoEnvironment

	sequences *sequenceScenario
	stale     *staleJobScenario
	orders    *poolScenario
	sessions  *sessionScenario
}

func newDemoRun(demoCluster cluster.Cluster, screen *terminal.Screen, limit time.Duration) *demoRun {
	s := &demoEnvironment{cluster: demoCluster, screen: screen, timeout: limit}
	return &demoRun{
		demoEnvironment: s, sequences: &sequenceScenario{demoEnvironment: s}, stale: &staleJobScenario{demoEnvironment: s}, orders: &poolScenario{demoEnvironment: s}, sessions: &sessionScenario{demoEnvironment: s},
	}
}

// sequenceScenario runs the examples of SequentialJobs.
type sequenceScenario struct {
	*demoEnvironment

	examples []*runningExample
}

// runningExample is an example and the demo's progress with it.
type runningExample struct {
	scenario.Example
	actionDone bool
	// phaseSince is when the demo first saw the current phase.
	phaseSince time.Time
}

// runScenarios runs all scenarios in order.
func (d *demoRun) runScenarios(ctx context.Context) error {
	d.printTitle("A cluster")
	if err := d.cluster.Start(ctx); err != nil {
		return err
	}
	if err := d.connectClients(ctx); err != nil {
		return err
	}
	d.printTitle("Stale Jobs")
	if err := d.stale.createStaleJobs(ctx); err != nil {
		return err
	}
	d.printTitle("The operator with its webhook")
	if err := d.deployOperator(ctx, d.stale.operatorSettings()); err != nil {
		return d.showOperatorAfter(ctx, err)
	}
	if err := d.sequences.runScenario(ctx); err != nil {
		return err
	}
	if err := d.stale.runScenario(ctx); err != nil {
		return err
	}
	if err := d.orders.runScenario(ctx); err != nil {
		return err
	}
	if err := d.sessions.runScenario(ctx); err != nil {
		return err
	}
	d.printTitle("Next steps")
	d.printNextSteps()
	return nil
}

func (a *sequenceScenario) runScenario(ctx context.Context) error {
	a.printTitle("SequentialJobs: steps in order")
	if err := a.applyExamples(ctx); err != nil {
		return a.explainFailure(ctx, err)
	}
	if err := a.followExamples(ctx); err != nil {
		return a.explainFailure(ctx, err)
	}
	if err := a.checkOutcomes(ctx); err != nil {
		return err
	}
	a.printTitle("SequentialJobs in kubectl")
	a.showKubectlOutput(ctx)
	return nil
}
