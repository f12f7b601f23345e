"""Reviews of oneself: may I do that, what may I do, who am I."""

from double import refusal
from double.access import Access, Ask, User
from double.address import Address
from double.store import Body


def answer(access: Access, user: User, address: Address, body: Body) -> Body:
    """The review with its status."""
    spec = body.get("spec") or {}
    if address.plural == "selfsubjectaccessreviews":
        status: Body = {"allowed": access.allows(user, _ask(spec))}
    elif address.plural == "selfsubjectrulesreviews":
        rules = access.rules(user, spec.get("namespace", ""))
        status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
    elif address.plural == "selfsubjectreviews":
        status = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
    else:
        raise refusal.no_path()
    kind = {"selfsubjectaccessreviews": "SelfSubjectAccessReview", "selfsubjectreviews": "SelfSubjectReview"}
    name = kind.get(address.plural, "SelfSubjectRulesReview")
    return {"kind": name, "apiVersion": f"{address.group}/v1", "metadata": {}, "spec": spec, "status": status}


def _ask(spec: Body) -> Ask:
    if "nonResourceAttributes" in spec:
        attributes = spec["nonResourceAttributes"]
        return Ask(attributes.get("verb", "get"), "", "", path=attributes.get("path", "/"))
    attributes = spec.get("resourceAttributes") or {}
    resource = attributes.get("resource", "")
    if attributes.get("subresource"):
        resource += f"/{attributes['subresource']}"
    names = (attributes.get("namespace", ""), attributes.get("name", ""))
    return Ask(attributes.get("verb", ""), attributes.get("group", ""), resource, *names)
