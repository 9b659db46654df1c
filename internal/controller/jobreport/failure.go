package jobreport

import (
	"context"
	"errors"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/report"
)

// scanFailure is what a report says of an error. Of one cause it is always the same, or
// each scan that fails would be a change.
func scanFailure(err error) report.ScanFailure {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return report.ScanFailure{Reason: v1alpha1.ReasonNamespaceTerminating, Message: "the namespace is being deleted"}
	case isNamespaceNotFound(err):
		return report.ScanFailure{Reason: v1alpha1.ReasonNamespaceNotFound, Message: "there is no such namespace"}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return report.ScanFailure{Reason: v1alpha1.ReasonForbidden, Message: stableErrorText(err)}
	case apierrors.IsResourceExpired(err):
		return report.ScanFailure{Reason: v1alpha1.ReasonExpired, Message: "the Jobs could not be listed to their end before the list expired"}
	case isTimeoutError(err):
		return report.ScanFailure{Reason: v1alpha1.ReasonTimeout, Message: "the Jobs could not be listed in time"}
	}
	if list := (*kube.ListError)(nil); errors.As(err, &list) && list.Pages > 0 {
		return report.ScanFailure{Reason: v1alpha1.ReasonPartialList, Message: "only some of the Jobs could be listed: " + stableErrorText(err)}
	}
	return report.ScanFailure{Reason: v1alpha1.ReasonListFailed, Message: stableErrorText(err)}
}

// isNamespaceNotFound reports whether the API server says that the namespace does not exist.
// Of a kind that it does not know, it says not found as well.
func isNamespaceNotFound(err error) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	details := answer.Status().Details
	return details != nil && details.Kind == "namespaces"
}

func isTimeoutError(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		(errors.As(err, &timeout) && timeout.Timeout())
}

// stableErrorText is an error's text without what is another each time: the page it came with, and
// the address, which has the continue token in it.
func stableErrorText(err error) string {
	if list := (*kube.ListError)(nil); errors.As(err, &list) {
		err = list.Err
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		err = request.Err
	}
	return err.Error()
}
