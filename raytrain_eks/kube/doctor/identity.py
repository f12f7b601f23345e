"""Who the pods are towards AWS: the service account, and what turns it into a role."""

from collections.abc import Iterator

from raytrain_eks.kube.doctor.look import Look, running, unready
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

ROLE = "eks.amazonaws.com/role-arn"
AGENT = "eks-pod-identity-agent"
WEBHOOK = "pod-identity-webhook"
"""EKS's own, which gives pods of an annotated account their token (IRSA)."""


def examine(look: Look) -> Iterator[Diagnosis]:
    """The account of the file; without a file the namespace's default one is nobody's choice."""
    if look.plan is None:
        return
    account, name = look.plan.cluster.service_account, look.plan.service_account
    found = look.client.find("v1", "ServiceAccount", name, look.namespace)
    id, where = "identity.account", f"ServiceAccount {look.namespace}/{name}"
    if found is None and account.create:
        yield green(id, where, "is not there yet; `apply` makes it")
    elif found is None:
        yield red(id, where, "does not exist, and the file does not make it", "create it, or write `create: true`")
    else:
        role = ((found.get("metadata") or {}).get("annotations") or {}).get(ROLE)
        yield _role(id, where, role, account.irsa, made=account.create)
    if account.irsa:
        yield from _webhook(look)
    elif account.pod_identity:
        yield _agent(look)
    elif any("s3://" in str(each) for each in _urls(look)) and not (account.irsa or account.pod_identity):
        why = "the file names S3 and gives the pods no role: they have what their node's role has"
        yield yellow("identity.role", where, why, "write `service_account: {irsa: arn:…}` or `pod_identity`")


def _role(id: str, where: str, have: str | None, want: str | None, *, made: bool) -> Diagnosis:
    if want and have != want:
        why = f"its role is {have or 'none'}, the file says {want}"
        return (yellow if made else red)(id, where, why, f"apply the file, or annotate it: {ROLE}={want}")
    return green(id, where, f"exists{f', with the role {have}' if have else ''}")


def _webhook(look: Look) -> Iterator[Diagnosis]:
    """The webhook is a part of EKS; other clusters need it installed."""
    where = f"MutatingWebhookConfiguration {WEBHOOK}"
    api = "admissionregistration.k8s.io/v1"
    if look.client.find(api, "MutatingWebhookConfiguration", WEBHOOK) is None:
        why = "is not there, so an annotated account gets no role (IRSA)"
        yield red(
            "identity.irsa", where, why, "every EKS cluster has it; elsewhere install amazon-eks-pod-identity-webhook"
        )
    else:
        yield green("identity.irsa", where, "gives pods of annotated accounts their token")


def _agent(look: Look) -> Diagnosis:
    where, id = f"DaemonSet {AGENT}", "identity.agent"
    found = [each for each, _ in running(look.daemon_sets, AGENT)]
    if not found:
        why = "is not there: Pod Identity gives no role"
        return red(id, where, why, f"install the EKS add-on {AGENT}")
    if (lacking := unready(found[0])) is not None:
        return red(id, where, f"Pod Identity's agent: {lacking}", "does it tolerate the nodes' taints?")
    return green(id, where, "is ready; the association itself is in EKS: aws eks list-pod-identity-associations")


def _urls(look: Look) -> Iterator[str]:
    """Values of environment variables that the pods would get."""
    assert look.plan is not None
    for pod in look.plan.pods:
        yield from pod.spec.environment.values()
