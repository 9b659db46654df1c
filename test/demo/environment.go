package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/demo/cluster"
	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const pollInterval = 200 * time.Millisecond

// demoEnvironment is what all scenarios share.
type demoEnvironment struct {
	cluster cluster.Cluster
	page    *page.Page
	// timeout is how long a scenario may take.
	timeout time.Duration

	// image is the operator's image.
	image      string
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

// showOperatorAfter prints the state of the operator, which may explain the error, and returns
// the error.
func (s *demoEnvironment) showOperatorAfter(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.page.PrintTitle("The operator")
		s.runKubectl(ctx, "-n", operatorNamespace, "get", "pods", "-o", "wide")
		s.runKubectl(ctx, "-n", operatorNamespace, "events")
		s.runKubectl(ctx, "-n", operatorNamespace, "logs", "-l", "app.kubernetes.io/name=yardmaster", "--tail=20", "--prefix")
	}
	return err
}

// waitUntil polls until the condition is true. The error is that of the last poll, if there is one.
func (*demoEnvironment) waitUntil(ctx context.Context, what string, condition func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (done bool, err error) {
		done, last = condition(ctx)
		return done && last == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%w: waiting for %s", context.Cause(ctx), what), last)
	}
	return nil
}

// runKubectl prints and runs a kubectl command. A failure is printed and does not end the
// demo.
func (s *demoEnvironment) runKubectl(ctx context.Context, args ...string) {
	s.page.PrintLine("\n  $ kubectl %s", strings.Join(quoteArguments(args), " "))
	command := s.cluster.KubectlCommand()
	if err := shell.Run(ctx, command[0], append(command[1:len(command):len(command)], args...)...); err != nil && !errors.Is(err, context.Canceled) {
		s.page.PrintLine("  %v", err)
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

// runKubectlQuietly runs a kubectl command, and returns its failure. Its output is not shown.
func (s *demoEnvironment) runKubectlQuietly(ctx context.Context, args ...string) error {
	if s.page.Verbose {
		s.page.PrintLine("  $ kubectl %s", strings.Join(quoteArguments(args), " "))
	}
	command := s.cluster.KubectlCommand()
	return shell.RunQuietly(ctx, command[0], append(command[1:len(command):len(command)], args...)...)
}
