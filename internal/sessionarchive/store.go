package sessionarchive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// store keeps files.
type store interface {
	// put stores a file under a name, which has slashes, and returns its location.
	put(ctx context.Context, file *os.File, name string) (location string, err error)
}

// claimStore moves files within a PersistentVolumeClaim, in which they were written.
type claimStore struct{ directory string }

const (
	directoryMode = 0o750
	fileMode      = 0o640
)

func (s claimStore) put(_ context.Context, file *os.File, name string) (string, error) {
	target := filepath.Join(s.directory, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(target), directoryMode); err != nil {
		return "", err
	}
	if err := errors.Join(file.Sync(), file.Chmod(fileMode)); err != nil {
		return "", err
	}
	return name, os.Rename(file.Name(), target)
}

// bucketStore uploads files.
type bucketStore struct {
	client *minio.Client
	bucket string
}

func newBucketStore(s *settings) (*bucketStore, error) {
	endpoint, err := url.Parse(s.endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("--endpoint %q is not a URL", s.endpoint)
	}
	transport, err := minio.DefaultTransport(endpoint.Scheme == "https")
	if err != nil {
		return nil, err
	}
	transport.Proxy = http.ProxyFromEnvironment
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: credentials.New(&mountedCredentials{directory: s.credentials}), Secure: endpoint.Scheme == "https", Region: s.region, Transport: transport,
	})
	if err != nil {
		return nil, err
	}
	return &bucketStore{client: client, bucket: s.bucket}, nil
}

func (s *bucketStore) put(ctx context.Context, file *os.File, name string) (string, error) {
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if _, err := file.Seek(0, 0); err != nil {
		return "", err
	}
	// One part needs no memory for parts, and the length is far below the limit of one.
	_, err = s.client.PutObject(ctx, s.bucket, name, file, info.Size(), minio.PutObjectOptions{ContentType: "application/x-ndjson", DisableMultipart: true})
	if err != nil {
		return "", err
	}
	return "s3://" + path.Join(s.bucket, name), nil
}

// mountedCredentials are those in the files of a Secret, which the kubelet replaces.
type mountedCredentials struct{ directory string }

// RetrieveWithCredContext implements credentials.Provider.
func (c *mountedCredentials) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return c.Retrieve()
}

// Retrieve implements credentials.Provider.
func (c *mountedCredentials) Retrieve() (credentials.Value, error) {
	value := credentials.Value{SignerType: credentials.SignatureV4}
	for name, into := range map[string]*string{
		"AWS_ACCESS_KEY_ID": &value.AccessKeyID, "AWS_SECRET_ACCESS_KEY": &value.SecretAccessKey, "AWS_SESSION_TOKEN": &value.SessionToken,
	} {
		raw, err := os.ReadFile(filepath.Join(c.directory, name))
		if err != nil && (!errors.Is(err, os.ErrNotExist) || name != "AWS_SESSION_TOKEN") {
			return value, fmt.Errorf("reading the Secret of the archive: %w", err)
		}
		*into = strings.TrimSpace(string(raw))
	}
	return value, nil
}

// IsExpired implements credentials.Provider: the files are read for each transcript.
func (*mountedCredentials) IsExpired() bool { return true }
