package sessionarchive

import (
	"context"
	"errors"
	"flag"
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

type storeSettings struct {
	claim                                         string
	endpoint, bucket, prefix, region, credentials string
}

func (s *storeSettings) register(f *flag.FlagSet) {
	f.StringVar(&s.claim, "claim", "", "Directory of the claim with the files.")
	f.StringVar(&s.endpoint, "endpoint", "", "URL of an object store with the API of Amazon S3, instead of a claim.")
	f.StringVar(&s.bucket, "bucket", "", "Bucket of the object store.")
	f.StringVar(&s.prefix, "prefix", "", "Prefix of the names of objects.")
	f.StringVar(&s.region, "region", "us-east-1", "Region of the bucket.")
	f.StringVar(&s.credentials, "credentials", "", "Directory with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and maybe AWS_SESSION_TOKEN.")
}

// open returns the store, and the directory for incomplete files.
func (s *storeSettings) open() (opened store, temp string, err error) {
	switch {
	case (s.claim == "") == (s.endpoint == ""):
		return nil, "", errors.New("exactly one of --claim and --endpoint is required")
	case s.claim != "":
		return claimStore{s.claim}, s.claim, nil
	case s.bucket == "" || s.credentials == "":
		return nil, "", errors.New("--endpoint requires --bucket and --credentials")
	}
	bucket, err := newBucketStore(s)
	return bucket, os.TempDir(), err
}

type store interface {
	// put stores a file under a name with slashes, and returns its location.
	put(ctx context.Context, file *os.File, name string) (location string, err error)
}

// claimStore moves files within the PersistentVolumeClaim in which they were written.
type claimStore struct{ directory string }

const (
	directoryMode = 0o750
	fileMode      = 0o640
)

func (s claimStore) put(_ context.Context, file *os.File, name string) (string, error) {
	root, err := os.OpenRoot(s.directory) // others may use the claim, and their symbolic links must not lead out of it
	if err != nil {
		return "", err
	}
	defer root.Close()
	target := filepath.FromSlash(name)
	if err := root.MkdirAll(filepath.Dir(target), directoryMode); err != nil {
		return "", err
	}
	if err := errors.Join(file.Sync(), file.Chmod(fileMode)); err != nil {
		return "", err
	}
	return name, root.Rename(filepath.Base(file.Name()), target)
}

type bucketStore struct {
	client *minio.Client
	bucket string
}

func newBucketStore(s *storeSettings) (*bucketStore, error) {
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
	// A single part needs no memory for parts, and the length is far below the limit of a part.
	_, err = s.client.PutObject(ctx, s.bucket, name, file, info.Size(), minio.PutObjectOptions{ContentType: contentType(name), DisableMultipart: true})
	if err != nil {
		return "", err
	}
	return "s3://" + path.Join(s.bucket, name), nil
}

// contentType returns the type with which browsers show a file.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".ndjson":
		return "application/x-ndjson"
	case ".bundle":
		return "application/octet-stream"
	case ".json":
		return "application/json"
	default:
		return "text/plain; charset=utf-8"
	}
}

// mountedCredentials are the credentials in the files of a Secret, which the kubelet replaces.
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

// IsExpired implements credentials.Provider: the files are read for each request.
func (*mountedCredentials) IsExpired() bool { return true }
