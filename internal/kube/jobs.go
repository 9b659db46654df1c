package kube

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jobPageSize is how many Jobs are listed at once.
const jobPageSize = 500

// maxListRestarts is how often a list is begun again whose continue token has expired.
const maxListRestarts = 1

// ListError is why not all Jobs could be listed.
type ListError struct {
	// Pages that could be.
	Pages int
	// Err is what the API server said to the next.
	Err error
}

// Error implements error.
func (e *ListError) Error() string { return fmt.Sprintf("listing Jobs, page %d: %v", e.Pages+1, e.Err) }

// Unwrap is what the API server said.
func (e *ListError) Unwrap() error { return e.Err }

// ForEachJob calls do with every Job of the namespace, or of all if that is empty, and keeps
// none of them. It lists them page by page, all as of one time. If the list expires
// before its end it begins again, so begin is called first, and then once more: the rest
// could be had, but of another time, so that Jobs would be missing or come twice.
//
// The reader must not be a cache.
func ForEachJob(ctx context.Context, live client.Reader, namespace string, begin func(), do func(*batchv1.Job)) error {
	for restarts := 0; ; restarts++ {
		begin()
		err := listJobsOnce(ctx, live, namespace, do)
		if !apierrors.IsResourceExpired(err) || restarts == maxListRestarts {
			return err
		}
	}
}

func listJobsOnce(ctx context.Context, live client.Reader, namespace string, do func(*batchv1.Job)) error {
	token := ""
	for page := 0; ; page++ {
		// Without a resourceVersion: with "0" the API server ignores the limit.
		list := &batchv1.JobList{}
		err := live.List(ctx, list, client.InNamespace(namespace), client.Limit(jobPageSize), client.Continue(token))
		if err != nil {
			return &ListError{Pages: page, Err: err}
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if token = list.Continue; token == "" {
			return nil
		}
	}
}
