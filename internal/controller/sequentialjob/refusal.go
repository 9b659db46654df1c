package sequentialjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/internal/sequence"
)

// refusalOf sorts an error of making an object: a refusal is the core's to weigh, all
// else is an error to try again after. Both are nil without an error.
func refusalOf(err error, step, doing string) (*sequence.Refusal, error) {
	switch {
	case err == nil:
		return nil, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, fmt.Errorf("%s: %w", doing, err) // the SequentialJob is going with it
	case isQuotaExceeded(err):
		return &sequence.Refusal{Kind: sequence.RefusedQuota, Step: step, Message: err.Error()}, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), isDeniedByAdmission(err):
		return &sequence.Refusal{Kind: sequence.RefusedInvalid, Step: step, Message: err.Error()}, nil
	default:
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
}

func nameTaken(kind, name string) *sequence.Refusal {
	return &sequence.Refusal{
		Kind:    sequence.RefusedNameTaken,
		Message: fmt.Sprintf("%s %s exists and is not this SequentialJob's; delete or rename it", kind, name),
	}
}

// isQuotaExceeded tells a quota's refusal from a missing permission: the API server
// answers Forbidden to both, and only the words differ (quota admission's
// "exceeded quota", "status unknown for quota", "failed quota").
func isQuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "quota")
}

// isDeniedByAdmission tells a policy's refusal from a missing permission.
func isDeniedByAdmission(err error) bool {
	return strings.Contains(err.Error(), "admission webhook") && strings.Contains(err.Error(), "denied the request") ||
		apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

func isControlledBy(object metav1.Object, uid types.UID) bool {
	controller := metav1.GetControllerOf(object)
	return controller != nil && controller.UID == uid
}
