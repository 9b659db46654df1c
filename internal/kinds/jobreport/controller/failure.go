package controller

import (
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	"github.com/yardmaster/yardmaster/internal/kube/joblist"
)

// scanError means that a scan failed or could not be recorded.
type scanError struct {
	error

	reason string
}

// newScanError returns nil without a cause. Its reason is the reason of the cause: a failed scan counts once, also if the
// failure could not be recorded.
func newScanError(cause, recordErr error) error {
	if cause == nil {
		return nil
	}
	err := cause
	if recordErr != nil && !errors.Is(recordErr, cause) {
		err = fmt.Errorf("%w; recording it: %w", cause, recordErr)
	}
	return &scanError{err, scanFailure(cause).Reason}
}

// Unwrap returns the error of the API server.
func (e *scanError) Unwrap() error { return e.error }

// scanFailure returns the same Failure for the same cause, because each change of the message would cause a write.
func scanFailure(err error) jobreport.Failure {
	reason, message := v1alpha1.ReasonListFailed, stableErrorText(err)
	if list := (*joblist.Error)(nil); errors.As(err, &list) && list.Pages > 0 {
		reason, message = v1alpha1.ReasonPartialList, "only some of the Jobs could be listed: "+message
	}
	switch decision.ClassOf(err) {
	case decision.NamespaceTerminating:
		reason, message = v1alpha1.ReasonNamespaceTerminating, "the namespace is being deleted"
	case decision.NotFound:
		if isNamespaceNotFound(err) {
			reason, message = v1alpha1.ReasonNamespaceNotFound, "the namespace does not exist; create it or remove it from --report-namespaces"
		}
	case decision.PermissionMissing:
		reason, message = v1alpha1.ReasonForbidden, stableErrorText(err)
	case decision.Expired:
		reason, message = v1alpha1.ReasonExpired, "the list of Jobs expired before its last page was read"
	case decision.Timeout:
		reason, message = v1alpha1.ReasonTimeout, "listing the Jobs took too long"
	}
	return jobreport.Failure{Reason: reason, Message: message}
}

func exportFailure(err error) jobreport.Failure {
	reason, message := v1alpha1.ReasonWriteFailed, stableErrorText(err)
	switch class := decision.ClassOf(err); {
	case isKindNotServed(err):
		reason, message = v1alpha1.ReasonCRDMissing, "the CustomResourceDefinition reports.openreports.io is not installed"
	case errors.Is(err, errReportNameTaken):
		reason, message = v1alpha1.ReasonNameTaken, err.Error()
	case class == decision.PermissionMissing:
		reason = v1alpha1.ReasonForbidden
	case class == decision.Timeout:
		reason, message = v1alpha1.ReasonTimeout, "writing the Report took too long"
	}
	return jobreport.Failure{Reason: reason, Message: message}
}

// isNamespaceNotFound distinguishes a missing namespace from a missing kind or object, for which the API server also answers
// NotFound.
func isNamespaceNotFound(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// isKindNotServed reports whether the API server does not serve the kind: discovery does not list it, or its path does not
// exist.
func isKindNotServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isAPIStatus reports whether the API server answered the request.
func isAPIStatus(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

func isForbidden(err error) bool { return decision.ClassOf(err) == decision.PermissionMissing }

// stableErrorText returns the text of an error without the parts that differ for each attempt: the page number, and the URL,
// which contains the continue token.
func stableErrorText(err error) string {
	if list := (*joblist.Error)(nil); errors.As(err, &list) {
		err = list.Err
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		err = request.Err
	}
	return err.Error()
}

// isInaccessible reports whether the report cannot be read or written because the namespace or the permission is gone. The
// state of the namespace's Jobs is then unknown.
func isInaccessible(err error) bool {
	return isNamespaceNotFound(err) || isForbidden(err) || decision.ClassOf(err) == decision.NamespaceTerminating
}
