// Package plugin is the kubectl plugin. It works from a laptop, with the rights of who
// calls it, and needs nothing installed in the cluster: it judges Jobs itself, in the way
// the operator does. It only reads.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The exit codes.
const (
	exitWell  = 0
	exitFound = 1 // what --fail-on asks for was found
	exitError = 2
)

// errFound is returned when what --fail-on asks for was found.
var errFound = errors.New("found")

// environment is what a command works with.
type environment struct {
	out io.Writer
	now func() time.Time
	// connect leads to the cluster, and to the namespace that holds if none is given.
	connect func(kubeconfig, kubeContext, namespace string) (client.Reader, string, error)
}

// Run runs the plugin and returns its exit code.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return run(ctx, args, errOut, environment{out: out, now: time.Now, connect: connect})
}

func run(ctx context.Context, args []string, errOut io.Writer, env environment) int {
	root := &cobra.Command{
		Use:           "kubectl-yardmaster",
		Short:         "Look at batch work",
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl yardmaster"},
	}
	root.SetArgs(args)
	root.SetOut(env.out)
	root.SetErr(errOut)
	root.AddCommand(newReport(env)) //nolint:contextcheck // cobra hands the context on

	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitWell
	case errors.Is(err, errFound):
		return exitFound
	default:
		fmt.Fprintln(errOut, "error:", err)
		return exitError
	}
}

// connect reads the kubeconfig as kubectl does.
func connect(kubeconfig, kubeContext, namespace string) (client.Reader, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubeContext})
	if namespace == "" {
		var err error
		if namespace, _, err = loaded.Namespace(); err != nil {
			return nil, "", err
		}
	}
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	scheme := runtime.NewScheme()
	if err := batchv1.AddToScheme(scheme); err != nil {
		return nil, "", err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, namespace, err
}
