package informer

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// NewCache returns a cache for objects that the manager's cache selects in another way. It completes the options with the
// connection of the manager.
func NewCache(mgr ctrl.Manager, objects string, options cache.Options) (cache.Cache, error) {
	options.HTTPClient, options.Scheme, options.Mapper = mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper()
	options.NewInformer = NewInformer
	created, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("creating the cache of %s: %w", objects, err)
	}
	return created, nil
}
