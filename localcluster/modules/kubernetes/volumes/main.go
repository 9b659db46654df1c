package volumes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Main runs the provisioner until SIGTERM.
func Main() int {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	name := flag.String("name", "", "the provisioner that StorageClasses name")
	dir := flag.String("dir", "", "where volumes are made")
	flag.Parse()

	ctx, stop := signal.NotifyContext(klog.NewContext(context.Background(), klog.Background()), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig, *name, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "volume-provisioner:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, kubeconfig, name, dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	provisioner := controller.NewProvisionController(ctx, client, name, Provisioner{Dir: dir},
		controller.LeaderElection(false),
		// The library waits 15 s before it tries again; a directory needs no such patience.
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)),
	)
	provisioner.Run(ctx)
	return nil
}
