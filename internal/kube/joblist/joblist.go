// Package joblist lists Jobs in pages, so that any number of Jobs needs little memory.
package joblist

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const jobsPerPage = 500

// maxListRestarts is how often an expired list is restarted.
const maxListRestarts = 1

// Error means that not all Jobs could be listed.
type Error struct {
	// Pages is the number of pages that were listed.
	Pages int
	// Err is the error of the next page.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("listing Jobs, page %d: %v", e.Pages+1, e.Err) }

// Unwrap returns the error of the page.
func (e *Error) Unwrap() error { return e.Err }

// ForEach calls do for every Job of the namespace, or of all namespaces if it is empty. It keeps at most one page of Jobs in
// memory, and all pages belong to one resourceVersion. It calls begin before the first page. If the list expires it restarts
// once and calls begin again: its remaining pages would belong to another resourceVersion, so that Jobs could be missing or
// appear twice. An error is a *Error.
//
// The reader must not be a cache.
func ForEach(ctx context.Context, live client.Reader, namespace string, begin func(), do func(*batchv1.Job)) error {
	for restarts := 0; ; restarts++ {
		begin()
		err := listAllPages(ctx, live, namespace, do)
		if !apierrors.IsResourceExpired(err) || restarts == maxListRestarts {
			return err
		}
	}
}

func listAllPages(ctx context.Context, live client.Reader, namespace string, do func(*batchv1.Job)) error {
	token := ""
	for page := 0; ; page++ {
		// Without a resourceVersion: with "0" the API server ignores the limit.
		list := &batchv1.JobList{}
		err := live.List(ctx, list, client.InNamespace(namespace), client.Limit(jobsPerPage), client.Continue(token))
		if err != nil {
			return &Error{Pages: page, Err: err}
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if token = list.Continue; token == "" {
			return nil
		}
	}
}
