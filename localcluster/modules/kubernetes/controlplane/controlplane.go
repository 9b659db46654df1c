package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/pkg/controller/job"

	"github.com/yardmaster/yardmaster/localcluster/modules/kubernetes/volumes"
)

// Main runs the control plane until SIGTERM, or until one of its components ends.
func Main() int {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: control-plane CONFIG.json")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "control-plane:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, path string) error {
	config, err := readConfig(path)
	if err != nil {
		return err
	}
	etcd, err := startEtcd(config.Etcd)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer etcd.Close()

	ended := make(chan error, 5)
	start := func(name string, component func(context.Context) error) {
		go func() { ended <- fmt.Errorf("%s ended: %w", name, component(ctx)) }()
	}
	go func() { ended <- fmt.Errorf("etcd ended: %w", <-etcd.Err()) }()

	// All are created before the first one runs, because they set up the same global feature gates, flags and metrics.
	apiserver, err := newAPIServer(ctx, config.APIServer)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	job.SyncJobBatchPeriod = config.JobBatchPeriod
	controllers, err := newControllerManager(ctx, config.ControllerManager)
	if err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	scheduler, err := newScheduler(ctx, config.Scheduler)
	if err != nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}

	start("kube-apiserver", apiserver)
	// The scheduler and the controllers exit if the API server does not respond.
	if err := waitReady(ctx, config.Kubeconfig, ended); err != nil {
		return err
	}
	start("kube-controller-manager", controllers)
	start("kube-scheduler", scheduler)
	provisioner, err := volumes.NewProvisioner(ctx, config.Kubeconfig, config.Volumes.Provisioner, config.Volumes.Dir)
	if err != nil {
		return fmt.Errorf("volume provisioner: %w", err)
	}
	start("volume provisioner", provisioner)

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// waitReady returns once the API server reports that it is ready.
func waitReady(ctx context.Context, kubeconfig string, ended <-chan error) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := rest.UnversionedRESTClientFor(rawConfig(config))
	if err != nil {
		return err
	}
	for {
		if client.Get().AbsPath("/readyz").Do(ctx).Error() == nil {
			return nil
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// parse reads arguments into the options of one component. The components' own
// cobra commands cannot be used here: each installs the process's signal handler,
// and the second one panics.
func parse(flags cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range flags.Order {
		all.AddFlagSet(flags.FlagSets[name])
	}
	return all.Parse(args)
}
