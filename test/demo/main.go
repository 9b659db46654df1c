// Command demo starts a cluster, deploys the operator, runs the examples and checks that each ends as expected.
//
// It uses the manifests in examples/. Users can repeat each change with the kubectl commands that the demo prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/demo/cluster"
	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const exitInterrupted = 130

func main() {
	down := flag.Bool("down", false, "delete the demo's cluster, or what the demo created in another one")
	limit := flag.Duration("timeout", 5*time.Minute, "time limit of each scenario")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runDemo(ctx, *down, *limit)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "\nInterrupted. `make demo` reuses the cluster; `make demo-down` deletes it.")
		os.Exit(exitInterrupted)
	default:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// runDemo runs the demo as the variables CLUSTER and VERBOSE say.
func runDemo(ctx context.Context, down bool, limit time.Duration) error {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // the clients return errors
	demoCluster, err := cluster.New(os.Getenv("CLUSTER"))
	if err != nil {
		return err
	}
	if down {
		return demoCluster.Delete(ctx)
	}
	verbose := os.Getenv("VERBOSE")
	screen := terminal.NewScreen(os.Stdout, terminal.NewStyle(terminal.ColorAuto, os.Stdout))
	return newDemoRun(&demoEnvironment{cluster: demoCluster, page: page.New(screen, verbose != "" && verbose != "0"), timeout: limit}).run(ctx)
}

// The namespaces of the examples and of the operator.
const (
	sequencesNamespace = cluster.SequencesNamespace
	staleNamespace     = cluster.StaleNamespace
	ordersNamespace    = cluster.OrdersNamespace
	sessionsNamespace  = cluster.SessionsNamespace
	operatorNamespace  = cluster.OperatorNamespace
	brokerNamespace    = cluster.BrokerNamespace
)

// demoScenario runs examples of one or several kinds.
type demoScenario interface {
	// begin adds the scenario's section to the page, and returns it.
	begin() *page.Section
	// run runs the examples, and checks that they end as expected. It returns the result in one sentence.
	run(ctx context.Context) (result string, err error)
	// showDetails prints what kubectl shows about the examples.
	showDetails(ctx context.Context)
	// showState prints what may explain the error of run.
	showState(ctx context.Context, err error)
}

type demoRun struct {
	*demoEnvironment

	stale     *staleJobScenario
	scenarios []demoScenario
}

func newDemoRun(s *demoEnvironment) *demoRun {
	stale := &staleJobScenario{demoEnvironment: s}
	return &demoRun{demoEnvironment: s, stale: stale, scenarios: []demoScenario{
		&sequenceScenario{demoEnvironment: s}, stale, &poolScenario{demoEnvironment: s}, &sessionScenario{demoEnvironment: s},
	}}
}

// run creates what the scenarios need, and runs them at the same time.
func (d *demoRun) run(ctx context.Context) error {
	if err := d.startCluster(ctx); err != nil {
		return err
	}
	if err := d.deploy(ctx); err != nil {
		return d.showOperatorAfter(ctx, err)
	}
	results, errs := d.runScenarios(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.page.Verbose {
		for _, s := range d.scenarios {
			s.showDetails(ctx)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return d.explainFailures(ctx, errs)
	}
	d.page.PrintTitle("All examples ended as expected")
	for _, result := range results {
		d.page.PrintLine("  %s %s", d.page.Success("✔"), result)
	}
	d.printNextSteps()
	return nil
}

// startCluster builds the images while it starts the cluster, which may have to be built itself.
func (d *demoRun) startCluster(ctx context.Context) error {
	d.page.PrintTitle("Setting up")
	if err := d.cluster.Prepare(ctx); err != nil {
		return err
	}
	group, groupContext := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := d.cluster.BuildImages(groupContext); err != nil {
			return err
		}
		return shell.RunQuietly(groupContext, "make", "--no-print-directory", "plugin", "kustomize")
	})
	if err := d.cluster.Start(groupContext); err != nil {
		return errors.Join(err, group.Wait())
	}
	err := d.page.Step("building the images of the operator and of the examples, and the kubectl plugin",
		"built the images of the operator and of the examples, and the kubectl plugin", group.Wait)
	if err != nil {
		return err
	}
	return d.connectClients(ctx)
}

func (d *demoRun) deploy(ctx context.Context) error {
	err := d.page.Step("loading the images into the cluster", "loaded the images into the cluster", func() (err error) {
		d.image, err = d.cluster.LoadImages(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return d.page.Step("deploying the operator and NATS", "deployed the operator to "+operatorNamespace+" and NATS to "+brokerNamespace, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return d.deployBroker(ctx) })
		group.Go(func() error {
			// Before the operator, as it finds Jobs in a real cluster, and because its permissions are in their namespace.
			if err := d.stale.createStaleJobs(ctx); err != nil {
				return err
			}
			return d.deployOperator(ctx, d.stale.operatorSettings())
		})
		return group.Wait()
	})
}

func (d *demoRun) runScenarios(ctx context.Context) (results []string, errs []error) {
	results, errs = make([]string, len(d.scenarios)), make([]error, len(d.scenarios))
	sections := make([]*page.Section, len(d.scenarios))
	for i, s := range d.scenarios {
		sections[i] = s.begin()
	}
	defer d.page.ShowSections()()
	var running sync.WaitGroup
	for i, s := range d.scenarios {
		running.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("not finished after %s", d.timeout))
			defer cancel()
			results[i], errs[i] = s.run(ctx)
			sections[i].End(errs[i])
		})
	}
	running.Wait()
	return results, errs
}

func (d *demoRun) explainFailures(ctx context.Context, errs []error) error {
	for i, err := range errs {
		if err != nil {
			d.scenarios[i].showState(ctx, err)
		}
	}
	return d.showOperatorAfter(ctx, errors.Join(errs...))
}

func (s *demoEnvironment) printNextSteps() {
	s.page.PrintTitle("Look around")
	s.page.PrintLine("  export KUBECONFIG=%s", s.kubeconfig)
	if _, err := exec.LookPath("kubectl"); err != nil {
		s.page.PrintLine("  alias kubectl='%s'", strings.Join(s.cluster.KubectlCommand(), " "))
	}
	s.page.PrintLine(`  kubectl -n %[1]s describe sj failing-migration
  bin/kubectl-yardmaster seq -n %[1]s watch failing-migration
  kubectl -n %[2]s describe jobreport jobs
  bin/kubectl-yardmaster report explain never-starting -n %[2]s
  bin/kubectl-yardmaster pool -n %[3]s explain orders
  bin/kubectl-yardmaster session -n %[4]s result retry
  bin/kubectl-yardmaster session -n %[4]s restart retry --watch

  bin/kubectl-yardmaster ui -A   # all objects in a browser, with live logs and actions

  examples/ has the manifests; docs/ has a page for each kind. VERBOSE=1 make demo shows every detail,
  and make demo-down deletes everything.`, sequencesNamespace, staleNamespace, ordersNamespace, sessionsNamespace)
}
