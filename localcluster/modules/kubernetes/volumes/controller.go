package volumes

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// NewProvisioner returns what serves the claims of StorageClasses that name this
// provisioner, with directories below dir, until its context ends.
func NewProvisioner(ctx context.Context, kubeconfig, name, dir string) (func(context.Context) error, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	provisioner := controller.NewProvisionController(ctx, client, name, Provisioner{Dir: dir},
		controller.LeaderElection(false),
		// The library waits 15 s before it tries again; a directory needs no such patience.
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)),
	)
	return func(ctx context.Context) error {
		provisioner.Run(ctx)
		return ctx.Err()
	}, nil
}
