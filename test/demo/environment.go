package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/demo/cluster"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

// demoEnvironment is what all scenarios share.
type demoEnvironment struct {
	cluster cluster.Cluster
	screen  *terminal.Screen
	// timeout is how long a scenario may take.
	timeout time.Duration

	kubeconfig string
	client     client.Client
	clientset  kubernetes.Interface
}

// connectClients creates the clients.
func (s *demoEnvironment) connectClients(ctx context.Context) error {
	kubeconfig, err := s.cluster.KubeconfigPath(ctx)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	s.kubeconfig = kubeconfig
	if s.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	s.clientset, err = kubernetes.NewForConfig(config)
	return err
}

func (s *demoEnvironment) printTitle(text string) {
	s.screen.PrintLine("\n%s", s.screen.Bold("== "+text))
}

// runTimed runs a function and prints how long it took.
func (s *demoEnvironment) runTimed(what string, do func() error) error {
	started := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.screen.PrintLine("  %s (%s)", what, time.Since(started).Round(time.Second/10))
	return nil
}

// showOperatorAfter prints the state of the operator, which may explain the error, and returns
// the error.
func (s *demoEnvironment) showOperatorAfter(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.showOperatorState(ctx)
	}
	return err
}

func (s *demoEnvironment) showOperatorState(ctx context.Context) {
	s.printTitle("The operator")
	s.runKubectl(ctx, "-n", operatorNamespace, "get", "pods", "-o", "wide")
	s.runKubectl(ctx, "-n", operatorNamespace, "events")
	s.runKubectl(ctx, "-n", operatorNamespace, "logs", "-l", "app.kubernetes.io/name=yardmaster", "--tail=20", "--prefix")
}

// runKubectl prints and runs a kubectl command. A failure is printed and does not end the
// demo.
func (s *demoEnvironment) runKubectl(ctx context.Context, args ...string) {
	s.screen.PrintLine("\n  $ kubectl %s", strings.Join(quoteArguments(args), " "))
	command := s.cluster.KubectlCommand()
	if err := shell.Run(ctx, command[0], append(command[1:len(command):len(command)], args...)...); err != nil && !errors.Is(err, context.Canceled) {
		s.screen.PrintLine("  %v", err)
	}
}

func quoteArguments(args []string) []string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if strings.ContainsAny(arg, " {}\"*") {
			quoted[i] = "'" + arg + "'"
		}
	}
	return quoted
}

// runKubectlQuietly prints and runs a kubectl command, and returns its failure. Its output is not
// shown.
func (s *demoEnvironment) runKubectlQuietly(ctx context.Context, args ...string) error {
	s.screen.PrintLine("  $ kubectl %s", strings.Join(args, " "))
	command := s.cluster.KubectlCommand()
	return shell.RunQuietly(ctx, command[0], append(command[1:len(command):len(command)], args...)...)
}

// runScenarioSteps runs the steps in order until one fails. It then prints the state of the
// scenario and of the operator, unless the step has reported its failure.
func (s *demoEnvironment) runScenarioSteps(
	ctx context.Context, title string, showState func(context.Context), steps ...func(context.Context) error,
) error {
	s.printTitle(title)
	for _, step := range steps {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil || errors.Is(err, errAlreadyReported) {
				return err
			}
			showState(ctx)
			return s.showOperatorAfter(ctx, err)
		}
	}
	return nil
}
