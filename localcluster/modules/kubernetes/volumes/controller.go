package volumes

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// NewProvisioner returns a controller that provisions the claims of StorageClasses
// that name this provisioner, as directories below dir, until its context is cancelled.
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
		// The library's default of 15 s between retries is too long for creating a directory.
		controller.RateLimiter(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)),
	)
	return func(ctx context.Context) error {
		provisioner.Run(ctx)
		return ctx.Err()
	}, nil
}
