package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestOnlyTheStoredObjectProvesThatItIsBeingDeleted(t *testing.T) {
	now := metav1.Now()
	invalid := []string{"spec.maxInFlight"}
	for title, row := range map[string]struct {
		before, after *metav1.Time
		want          []string
	}{
		"an object that is not being deleted is validated":         {nil, nil, invalid},
		"a deletionTimestamp in the request changes nothing":       {nil, &now, invalid},
		"an object that is being deleted is not validated":         {&now, &now, nil},
		"an object whose deletionTimestamp the request omits, too": {&now, nil, nil},
	} {
		t.Run(title, func(t *testing.T) {
			before, after := queueOf(v1alpha1.QueueSpec{}), queueOf(invalidQueueSpec())
			before.DeletionTimestamp, after.DeletionTimestamp = row.before, row.after
			_, err := QueueValidator.ValidateUpdate(t.Context(), before, after)
			wantFields(t, err, row.want)
		})
	}
	created := queueOf(invalidQueueSpec())
	created.DeletionTimestamp = &now
	_, err := QueueValidator.ValidateCreate(t.Context(), created)
	wantFields(t, err, invalid)
}
