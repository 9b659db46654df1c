package sessionarchive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/podclient"
)

const (
	// podsPerPage bounds a response with the metadata of Pods, each of which may have annotations of 256 KiB.
	podsPerPage    = 20
	maxAnswerSize  = 16 << 20
	requestTimeout = 30 * time.Second
	// logTimeout bounds the reading of a log: a node that does not answer must not prevent the reading of other logs.
	logTimeout = 3 * time.Minute
	maxRunPods = 5000
	// labelSequenceUID is on the Pods of a SequentialJob. Only their controller proves that they belong to it.
	labelSequenceUID = "yardmaster.dev/sequentialjob-uid"
)

type podReader struct {
	client    *podclient.Client
	namespace string
	// maxPods is about how many Pods a list has.
	maxPods int
}

// pod has the fields of a Pod that are read.
type pod struct {
	Metadata podMetadata `json:"metadata"`
	Spec     struct {
		InitContainers      []podContainer `json:"initContainers"`
		Containers          []podContainer `json:"containers"`
		EphemeralContainers []podContainer `json:"ephemeralContainers"`
	} `json:"spec"`
	Status struct {
		InitContainerStatuses      []containerStatus `json:"initContainerStatuses"`
		ContainerStatuses          []containerStatus `json:"containerStatuses"`
		EphemeralContainerStatuses []containerStatus `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

type podMetadata struct {
	Name            string           `json:"name"`
	UID             string           `json:"uid"`
	OwnerReferences []ownerReference `json:"ownerReferences"`
}

type ownerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

type podContainer struct {
	Name string `json:"name"`
}

type containerStatus struct {
	Name         string `json:"name"`
	RestartCount int    `json:"restartCount"`
	State        struct {
		Waiting *struct{} `json:"waiting"`
	} `json:"state"`
}

// jobUID returns the UID of the Job that controls the Pod; empty for another Pod.
func (m *podMetadata) jobUID() string {
	for _, owner := range m.OwnerReferences {
		if owner.Controller && owner.Kind == "Job" && owner.APIVersion == "batch/v1" {
			return owner.UID
		}
	}
	return ""
}

// status returns the status of a container; nil without a status.
func (p *pod) status(container string) *containerStatus {
	for _, statuses := range [][]containerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == container {
				return &statuses[i]
			}
		}
	}
	return nil
}

// list returns the metadata of the Pods of a SequentialJob by the UID of their controlling Job, for these Jobs, and whether there are
// more Pods.
func (r *podReader) list(ctx context.Context, sequenceUID string, jobs []stepJob) (byJob map[string][]podMetadata, more bool, err error) {
	byJob = map[string][]podMetadata{}
	for _, job := range jobs {
		byJob[job.uid] = nil
	}
	query := url.Values{"labelSelector": {labelSequenceUID + "=" + sequenceUID}, "limit": {strconv.Itoa(podsPerPage)}}
	for count := 0; ; {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []pod `json:"items"`
		}
		err := r.read(ctx, r.path()+"?"+query.Encode(), "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", &page)
		if err != nil {
			return nil, false, fmt.Errorf("listing Pods: %w", err)
		}
		for i := range page.Items {
			listed := page.Items[i].Metadata
			if pods, found := byJob[listed.jobUID()]; found {
				byJob[listed.jobUID()] = append(pods, listed)
				count++
			}
		}
		if page.Metadata.Continue == "" || count >= r.maxPods {
			return byJob, page.Metadata.Continue != "", nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// log returns up to limit bytes of a container's log, or, if previous, of the log before its last restart.
func (r *podReader) log(ctx context.Context, pod, container string, previous bool, limit int64) (io.ReadCloser, error) {
	query := url.Values{"container": {container}, "limitBytes": {strconv.FormatInt(limit, 10)}}
	if previous {
		query.Set("previous", "true")
	}
	response, err := r.client.Do(ctx, http.MethodGet, r.path(pod, "log")+"?"+query.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

func (r *podReader) path(elements ...string) string {
	escaped := []string{"/api/v1/namespaces", url.PathEscape(r.namespace), "pods"}
	for _, element := range elements {
		escaped = append(escaped, url.PathEscape(element))
	}
	return strings.Join(escaped, "/")
}

func (r *podReader) read(ctx context.Context, path, accept string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := r.client.Do(ctx, http.MethodGet, path, map[string]string{"Accept": accept}, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswerSize)).Decode(into)
}

// isMissing reports whether an object or log does not exist, so that another attempt would not find it.
func isMissing(err error) bool {
	status := (*podclient.StatusError)(nil)
	return errors.As(err, &status) && (status.Code == http.StatusNotFound || status.Code == http.StatusBadRequest)
}
