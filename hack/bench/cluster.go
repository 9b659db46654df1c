package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	clusterName  = "bench"
	localcluster = "bin/localcluster"
)

// cluster is the control plane that is measured on.
type cluster struct {
	client.WithWatch

	config     *rest.Config
	kubeconfig string
}

func startCluster(ctx context.Context) (*cluster, error) {
	if err := command(ctx, localcluster, "up", "--mode", "control-plane", "--name", clusterName); err != nil {
		return nil, err
	}
	kubeconfig, err := exec.CommandContext(ctx, localcluster, "kubeconfig", "--name", clusterName).Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the kubeconfig: %w", err)
	}
	c, err := connect(strings.TrimSpace(string(kubeconfig)))
	if err != nil {
		return nil, err
	}
	return c, c.installCRD(ctx)
}

func connect(kubeconfig string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server's own fairness is the limit, as it is for the operator
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &cluster{WithWatch: withWatch, config: config, kubeconfig: kubeconfig}, nil
}

// stopCluster takes the cluster down, also after an interrupt.
func stopCluster(ctx context.Context) {
	if err := command(context.WithoutCancel(ctx), localcluster, "down", "--name", clusterName); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

func (c *cluster) installCRD(ctx context.Context) error {
	raw, err := os.ReadFile(filepath.Join("config", "crd", "bases", "yardmaster.dev_sequentialjobs.yaml"))
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("bench"), client.ForceOwnership); err != nil {
		return err
	}
	return poll(ctx, time.Minute, func() (bool, error) {
		return c.List(ctx, &v1alpha1.SequentialJobList{}) == nil, nil
	})
}

func buildOperator(ctx context.Context) (string, error) {
	const binary = "bin/yardmaster-bench"
	return binary, command(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/yardmaster")
}

func command(ctx context.Context, name string, args ...string) error {
	process := exec.CommandContext(ctx, name, args...)
	process.Stdout, process.Stderr = os.Stderr, os.Stderr
	if err := process.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// poll calls done until it says so.
func poll(ctx context.Context, patience time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", patience, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
